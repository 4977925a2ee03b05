import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";
import type { Problem } from "../data/api.ts";

/** A part of a page with its heading, and what belongs beside that. */
export function Panel(props: {
  title: string;
  /** A word about it, under the heading. */
  about?: ComponentChildren;
  side?: ComponentChildren;
  class?: string;
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

/** What stands where there is nothing to show, and says why. */
export function Nothing(props: { title: string; children?: ComponentChildren }) {
  return (
    <div class="nothing">
      <p class="nothing-title">{props.title}</p>
      {props.children && <div class="muted small">{props.children}</div>}
    </div>
  );
}

/** What stands where something could not be asked. */
export function Trouble(props: { problem: Problem; what: string; absent: ComponentChildren }) {
  if (props.problem.absent) {
    return <Nothing title={`${props.what}: not available here`}>{props.absent}</Nothing>;
  }
  return (
    <p class="trouble small" role="note">
      {props.problem.message} Asking again by itself.
    </p>
  );
}
