import { useEffect, useMemo, useRef } from "preact/hooks";
import "../ui/ui.css";
import "./dashboard.css";
import { slices } from "../data/history.ts";
import { Live } from "../data/live.ts";
import { usePoll } from "../data/poll.ts";
import { whileSeen } from "../data/stream.ts";
import type { Rule, Status } from "../data/types.ts";
import { Actions } from "../keys/Actions.tsx";
import { Segments } from "../shell/Segments.tsx";
import { absolute, clock, count } from "../ui/format.ts";
import { Icon } from "../ui/Icon.tsx";
import { Panel } from "../ui/Panel.tsx";
import { Scroll } from "../ui/table.tsx";
import { Chart } from "./Chart.tsx";
import { ConnectionState } from "./Connection.tsx";
import { byOutcome, byRule, inWords, rowsOf } from "./chart.ts";
import { Empty } from "./Empty.tsx";
import { Alarms, Health } from "./Health.tsx";
import { Offenders } from "./Offenders.tsx";
import { RegionsPanel } from "./RegionsPanel.tsx";
import { RuleTable } from "./RuleTable.tsx";
import { Tiles } from "./Tiles.tsx";
import { UpstreamPanel } from "./UpstreamPanel.tsx";
import { spans, view } from "./view.ts";

/** The dashboard page: requests, rules, top keys, and the state of the server. */
export function Dashboard() {
  const live = useMemo(() => new Live(), []);
  useEffect(() => whileSeen(live.stream), [live]);
  const status = usePoll<Status>("/v1/status", 2000).state.value;
  const rules = usePoll<{ rules: Rule[] }>("/v1/rules", 60_000).state.value;
  const store = live.store.value;
  const paused = view.paused.value;
  // While paused, keep the beat of the last drawing.
  const held = useRef(0);
  if (!paused) held.current = live.beat.value;
  const beat = held.current;
  const span = view.span.value;
  const sum = useMemo(() => live.history.sum(span), [beat, span]);
  const now = useMemo(() => live.history.sum(5000), [beat]);
  const text = spans.find((s) => s.ms === span)!.text;
  const empty = beat > 0 && sum.requests === 0 && live.history.sum(15 * 60_000).requests === 0;
  const lost = live.stream.state.value === "lost" || (status.problem !== undefined && !status.problem.absent);
  const health = <Health status={status} circuit={store?.circuit} keys={store?.keys} lost={lost} />;
  return (
    <div class="page">
      <header class="dash-head">
        <h1>Dashboard</h1>
        <ConnectionState stream={live.stream} paused={paused} />
        <div class="dash-controls">
          <button
            type="button"
            class="button"
            aria-pressed={paused}
            aria-keyshortcuts="p"
            onClick={() => {
              view.paused.value = !paused;
            }}
          >
            <Icon name={paused ? "play" : "pause"} />
            {paused ? "Resume" : "Pause"}
          </button>
          <Segments
            legend="Time range"
            value={String(span)}
            options={spans.map(({ ms, text }) => ({ value: String(ms), text }))}
            onChange={(ms) => {
              view.span.value = Number(ms);
            }}
          />
        </div>
      </header>
      <Alarms status={status} circuit={store?.circuit} lost={lost} />
      {empty ? (
        !lost && <Empty status={status.data} rules={rules.data?.rules ?? []} />
      ) : (
        <>
          <Tiles sum={sum} now={now} />
          {sum.degraded > 0 && (
            <p class="alarm delayed">
              <b>{count(sum.degraded)} decisions without the store</b> in the last {text}. Each rule applied
              its <code>on_store_error</code> setting.
            </p>
          )}
          <Traffic live={live} beat={beat} />
          <div class="dash-cols">
            <RuleTable sum={sum} span={text} />
            <Offenders />
          </div>
        </>
      )}
      {status.data?.upstream && <UpstreamPanel of={status.data.upstream} />}
      {status.data?.regions && <RegionsPanel lost={lost} />}
      {health}
      <Actions />
    </div>
  );
}

/** The chart, and the same numbers as a table. */
function Traffic(props: { live: Live; beat: number }) {
  const { history } = props.live;
  const span = view.span.value;
  const by = view.by.value;
  const rule = view.rule.value;
  const picture = useMemo(
    () => (by === "rule" ? byRule(history, span) : byOutcome(history, span, rule)),
    [props.beat, span, by, rule],
  );
  const chosen = rule === undefined ? undefined : history.names[rule];
  const series = history.series(span, by === "rule" ? undefined : rule);
  const sums = slices(series, 1e9)[0]?.counts;
  return (
    <Panel
      title={chosen && by === "outcome" ? `Requests per second: ${chosen.rule}` : "Requests per second"}
      about={
        by === "rule"
          ? "A request counts for every rule that applies to it."
          : "Each request counts once, by its outcome."
      }
      class="traffic"
      side={
        <>
          {chosen && by === "outcome" && (
            <button
              type="button"
              class="button small-button"
              onClick={() => {
                view.rule.value = undefined;
              }}
            >
              <Icon name="close" />
              All rules
            </button>
          )}
          <Segments
            legend="Group by"
            value={by}
            options={[
              { value: "outcome", text: "By outcome" },
              { value: "rule", text: "By rule" },
            ]}
            onChange={(next) => {
              view.by.value = next;
            }}
          />
        </>
      }
    >
      <Chart
        picture={picture}
        span={span}
        last={history.last}
        label={`Chart. ${sums ? inWords(sums, series.times.length) : "No requests yet."} The table below has the numbers.`}
      />
      <details class="as-table">
        <summary>Show as table</summary>
        <Scroll label="Requests over time">
          <table class="table">
            <caption class="hidden">
              {by === "rule"
                ? "Requests by rule"
                : chosen
                  ? `Requests for ${chosen.rule} by outcome`
                  : "All requests by outcome"}
              , newest first
            </caption>
            <thead>
              <tr>
                <th scope="col">From</th>
                {picture.lines.map((line) => (
                  <th key={line.id} scope="col" class="num" title={line.id}>
                    {line.text}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rowsOf(picture, span > 300_000 ? 60 : span > 60_000 ? 15 : 5).map((row) => (
                <tr key={row.from}>
                  <th scope="row">
                    <time
                      dateTime={new Date(row.from * 1000).toISOString()}
                      title={absolute(row.from * 1000)}
                    >
                      {clock(row.from * 1000)}
                    </time>
                  </th>
                  {row.sums.map((n, i) => (
                    <td key={picture.lines[i]!.id} class="num">
                      {count(n)}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      </details>
    </Panel>
  );
}
