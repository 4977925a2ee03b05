import type { Blocks as Of } from "../data/types.ts";
import { count, share } from "../ui/format.ts";

/** What this server has drawn of a rule in advance, and how far off the limit can be. */
export function Blocks(props: { of: Of }) {
  const { rule, over, bound, now } = props.of;
  return (
    <p class="small blocks" title={`Admits ${bound}`} data-blocks={rule}>
      <span class="muted">{now ? held(now) : "In blocks with Redis; this server has none."}</span>{" "}
      <span class="num">
        {over > 0 ? `At most ${count(over)} too many` : "Never too many"}
        {now && (now.under > 0 ? `, now at most ${count(now.under)} too few` : ", now none too few")}.
      </span>
    </p>
  );
}

function held(now: NonNullable<Of["now"]>): string {
  const all = now.admitted + now.direct;
  const keys = `${count(now.keys)} busy ${now.keys === 1 ? "key" : "keys"}`;
  const holds = now.keys > 0 ? `${count(now.held)} tokens held of ${keys}` : "no busy key";
  return `In blocks: ${holds}${all > 0 ? `, ${share(now.admitted, all)} decided here` : ""}.`;
}
