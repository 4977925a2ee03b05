import type { Sum } from "../data/history.ts";
import { count, perSecond, share } from "../ui/format.ts";

/** Exact totals for the time range. */
export function Tiles(props: { sum: Sum; now: Sum }) {
  const { sum, now } = props;
  const { totals } = sum;
  const shadowed = totals.shadow_banned + totals.shadow_refused;
  return (
    <dl class="tiles">
      <Tile
        id="requests"
        name="Requests"
        value={sum.requests}
        note={`${perSecond(now.seconds > 0 ? now.requests / now.seconds : 0)}/s now`}
      />
      <Tile id="allowed" name="Allowed" value={totals.allowed} note={share(totals.allowed, sum.requests)} />
      <Tile id="refused" name="Refused" value={totals.refused} note={share(totals.refused, sum.requests)} />
      <Tile id="delayed" name="Delayed" value={totals.delayed} note={share(totals.delayed, sum.requests)} />
      <Tile id="queued" name="Queued" value={totals.queued} note={share(totals.queued, sum.requests)} />
      <Tile
        id="shadowed"
        name="Shadowed"
        value={shadowed}
        note={share(shadowed, sum.requests)}
        title={`${count(totals.shadow_refused)} would have been refused (shadow mode), ${count(totals.shadow_banned)} received a fake response (shadow ban)`}
      />
      {totals.marked > 0 && (
        <Tile
          id="marked"
          name="Marked"
          value={totals.marked}
          note={share(totals.marked, sum.requests)}
          title="Passed, and the upstream is told: near a limit with soft, or over one with on_limit: pass"
        />
      )}
      <Tile
        id="near"
        name="Near a limit"
        value={sum.near}
        note={`${share(sum.near, sum.passed)} of allowed`}
        title="Requests allowed with 20% of the limit or less remaining, counted for each rule"
      />
    </dl>
  );
}

function Tile(props: { id: string; name: string; value: number; note: string; title?: string }) {
  return (
    <div
      class={`tile panel ${props.id} ${props.value === 0 ? "none" : ""}`}
      data-tile={props.id}
      title={props.title}
    >
      <dt>{props.name}</dt>
      <dd>
        <span class="tile-value num">{count(props.value)}</span>
        <span class="tile-note num">{props.note}</span>
      </dd>
    </div>
  );
}
