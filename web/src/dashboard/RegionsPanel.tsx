import { usePoll } from "../data/poll.ts";
import type { RegionState, RegionStatus } from "../data/types.ts";
import { count, duration } from "../ui/format.ts";
import { Nothing, Panel, Trouble } from "../ui/Panel.tsx";
import { Scroll } from "../ui/table.tsx";
import { State } from "./Health.tsx";

/** The regions that limits are shared with. */
export function RegionsPanel(props: { lost: boolean }) {
  const { data, problem } = usePoll<RegionState>("/v1/regions", 2000).state.value;
  const cut = data?.others.filter((r) => r.state === "cut") ?? [];
  return (
    <Panel
      title="Regions"
      class="regions"
      about={data && acts(data)}
      side={
        data && (
          <State
            lost={props.lost}
            good={cut.length === 0}
            text={cut.length === 0 ? "connected" : `cut off from ${cut.map((r) => r.region).join(", ")}`}
          />
        )
      }
    >
      {problem && <Trouble problem={problem} what="Regions" absent="This server does not report them." />}
      {!data && !problem && <p class="muted small part-body">Loading…</p>}
      {data && <Others others={data.others} />}
      {data && <Shared state={data} />}
    </Panel>
  );
}

function acts(data: RegionState): string {
  const does = data.acts
    ? "gives and receives tokens for it"
    : "leaves giving and receiving to another server of it";
  const asked = data.asked > 0 ? ` ${count(data.asked)} tokens asked for have not come yet.` : "";
  return `This server is in ${data.region}, and ${does}.${asked}`;
}

function Others(props: { others: readonly RegionStatus[] }) {
  return (
    <Scroll label="Other regions">
      <table class="table">
        <caption class="hidden">Other regions, and tokens exchanged with them since the start</caption>
        <thead>
          <tr>
            <th scope="col">Region</th>
            <th scope="col">State</th>
            <th scope="col" class="num" title="How old its messages were when they were last read">
              Lag
            </th>
            <th scope="col" class="num">
              Received
            </th>
            <th scope="col" class="num">
              Given
            </th>
            <th scope="col" class="num" title="Given, and not confirmed yet">
              On the way
            </th>
            <th
              scope="col"
              class="num"
              title="Given, and not confirmed for half a minute: they may be lost, and then count as used"
            >
              Unconfirmed
            </th>
          </tr>
        </thead>
        <tbody>
          {props.others.map((r) => (
            <tr key={r.region} data-region={r.region}>
              <th scope="row">{r.region}</th>
              <td>
                <Reach of={r} />
              </td>
              <td class="num">{r.news_ms === null ? "–" : duration(r.lag_ms)}</td>
              <td class="num">{count(r.received)}</td>
              <td class="num">{count(r.given)}</td>
              <td class="num">{count(r.unacknowledged)}</td>
              <td class="num">{count(r.unconfirmed)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

function Reach(props: { of: RegionStatus }) {
  const { state, cut_ms, error } = props.of;
  return (
    <>
      {state === "unknown" ? (
        <span class="badge" title="Another server of this region reads its messages">
          unknown
        </span>
      ) : (
        <State good={state === "reachable"} text={state === "cut" ? `cut for ${duration(cut_ms)}` : state} />
      )}
      {error && <span class="region-error muted small">{error}</span>}
    </>
  );
}

/** The limits that regions share: what each region has, and what all admit together. */
function Shared(props: { state: RegionState }) {
  const { rules } = props.state;
  if (rules.length === 0) {
    return (
      <Nothing title="No rule is shared.">
        A rule with <code>regions: shared</code> has one limit for all regions.
      </Nothing>
    );
  }
  return (
    <ul class="region-rules small">
      {rules.map((r) => (
        <li key={JSON.stringify([r.domain, r.rule, r.rate])} data-rule={r.rule}>
          <b>{r.rule}</b> <span class="muted">{r.domain}</span> <span class="num">{r.rate}</span>:{" "}
          {r.home ? `counted in ${r.home}` : r.parts.map((p) => `${p.region} ${count(p.limit)}`).join(", ")}
          <span class="muted region-bound">{r.bound}</span>
        </li>
      ))}
    </ul>
  );
}
