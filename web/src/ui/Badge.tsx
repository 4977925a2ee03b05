import { words } from "./format.ts";

const colours: Record<string, string> = {
  allowed: "allowed",
  refused: "refused",
  delayed: "delayed",
  queued: "queued",
  shadow_banned: "shadowed",
  shadow_refused: "shadowed",
  marked: "marked",
};

/** An outcome as a coloured badge. */
export function OutcomeBadge(props: { outcome: string }) {
  return <span class={`badge ${colours[props.outcome] ?? ""}`}>{words(props.outcome)}</span>;
}
