import { absolute, relative } from "./format.ts";
import { now } from "./now.ts";

/** A relative time such as "5 min ago", with the exact time as its title. */
export function Time(props: { at: string | number | undefined; none?: string }) {
  const t = typeof props.at === "string" ? Date.parse(props.at) : (props.at ?? Number.NaN);
  // Go's zero time means that it is not set.
  if (!(t > 0)) return <span class="muted">{props.none ?? "–"}</span>;
  return (
    <time dateTime={new Date(t).toISOString()} title={absolute(t)}>
      {relative(t, now.value)}
    </time>
  );
}
