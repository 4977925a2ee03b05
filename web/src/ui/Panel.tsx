import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";
import type { Problem } from "../data/api.ts";

/** A section of a page with a heading and controls next to it. */
export function Panel(props: {
  title: string;
  /** A short description under the heading. */
  about?: ComponentChildren;
  side?: ComponentChildren;
  class?: string | undefined;
  children: ComponentChildren;
}) {
  const id = useId();
  return (
    <section class={`panel part ${props.class ?? ""}`} aria-labelledby={id}>
      <header class="part-head">
        <div class="part-title">
          <h2 id={id}>{props.title}</h2>
          {props.about && <p class="muted small">{props.about}</p>}
        </div>
        {props.side && <div class="part-side">{props.side}</div>}
      </header>
      {props.children}
    </section>
  );
}

/** An empty state: says that there is nothing to show, and why. */
export function Nothing(props: { title: string; children?: ComponentChildren }) {
  return (
    <div class="nothing">
      <p class="nothing-title">{props.title}</p>
      {props.children && <div class="muted small">{props.children}</div>}
    </div>
  );
}

/** Shown in place of data that could not be loaded. */
export function Trouble(props: { problem: Problem; what: string; absent: ComponentChildren }) {
  if (props.problem.absent) {
    return <Nothing title={`${props.what}: not available`}>{props.absent}</Nothing>;
  }
  return (
    <p class="trouble small" role="note">
      {props.problem.message} Retrying automatically.
    </p>
  );
}
