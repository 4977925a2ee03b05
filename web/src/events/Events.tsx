import { useEffect, useMemo, useState } from "preact/hooks";
import "../ui/ui.css";
import { ConnectionState } from "../dashboard/Connection.tsx";
import { usePoll } from "../data/poll.ts";
import { whileSeen } from "../data/stream.ts";
import { outcomes, type Rule } from "../data/types.ts";
import { Actions } from "../keys/Actions.tsx";
import { ask } from "../keys/actions.ts";
import { OutcomeBadge } from "../ui/Badge.tsx";
import { Choice } from "../ui/Choice.tsx";
import { absolute, clock, count, duration, escaped, words, zone } from "../ui/format.ts";
import { Icon } from "../ui/Icon.tsx";
import { KeyView } from "../ui/KeyView.tsx";
import { Nothing, Panel } from "../ui/Panel.tsx";
import { Scroll } from "../ui/table.tsx";
import { everything, type Filter, most, type Seen, Tail } from "./tail.ts";

/** The events page: single decisions, live. */
export function Events() {
  const [filter, setFilter] = useState<Filter>(() => fromHash(location.hash));
  const [wanted, setWanted] = useState(filter);
  const [on, setOn] = useState(true);
  const tail = useMemo(() => new Tail(wanted), [wanted]);
  useEffect(() => (on ? whileSeen(tail.stream) : undefined), [tail, on]);
  // Reconnect when typing pauses, not for each letter.
  useEffect(() => {
    const timer = setTimeout(() => setWanted(filter), 400);
    history.replaceState(null, "", toHash(filter));
    return () => clearTimeout(timer);
  }, [filter]);
  const rules = usePoll<{ rules: Rule[] }>("/v1/rules", 60_000).state.value.data?.rules ?? [];
  const shown = tail.shown.value;
  return (
    <div class="page">
      <header class="dash-head">
        <h1>Events</h1>
        <ConnectionState stream={tail.stream} />
        <div class="dash-controls">
          <button type="button" class="button" aria-pressed={!on} onClick={() => setOn(!on)}>
            <Icon name={on ? "pause" : "play"} />
            {on ? "Pause" : "Resume"}
          </button>
        </div>
      </header>
      <Panel
        title="Decisions"
        class="tail"
        about={`The newest ${most} that match the filter, up to 500 per second. Watching costs the server some CPU time.`}
      >
        <Filters filter={filter} rules={rules} onChange={setFilter} />
        <p class="part-body small muted num">
          {count(tail.seen.value)} received
          {tail.lost.value > 0 &&
            `, ${count(tail.lost.value)} skipped because there were too many: narrow the filter or use a sample`}
        </p>
        {shown.length === 0 ? (
          <Nothing title={on ? "Waiting for decisions." : "Paused."}>
            {on ? "Decisions that match the filter appear here." : "Press Resume to continue."}
          </Nothing>
        ) : (
          <Scroll label="Table of decisions">
            <table class="table events-table stacked">
              <thead>
                <tr>
                  <th scope="col">Time ({zone(Date.now())})</th>
                  <th scope="col">Outcome</th>
                  <th scope="col">Rule</th>
                  <th scope="col">Key</th>
                  <th scope="col">Request</th>
                  <th scope="col" class="num">
                    Remaining
                  </th>
                  <th scope="col" class="num">
                    Retry after
                  </th>
                </tr>
              </thead>
              <tbody>
                {shown.map((d) => (
                  <Row key={d.n} seen={d} />
                ))}
              </tbody>
            </table>
          </Scroll>
        )}
      </Panel>
      <Actions />
    </div>
  );
}

function Row(props: { seen: Seen }) {
  const d = props.seen;
  return (
    <tr>
      <td class="nowrap" data-label="Time">
        <time dateTime={d.t} title={absolute(Date.parse(d.t))}>
          {clock(Date.parse(d.t))}.{String(new Date(d.t).getMilliseconds()).padStart(3, "0")}
        </time>
      </td>
      <td data-label="Outcome">
        <OutcomeBadge outcome={d.outcome} />
        {d.reason !== "ok" && d.reason !== "limited" && <span class="muted small"> {words(d.reason)}</span>}
      </td>
      <td class="name" data-label="Rule">
        {d.rule || <span class="muted">no rule applied</span>}{" "}
        <span class="muted small">{d.rule ? d.domain : `in ${d.domain}`}</span>
      </td>
      <td data-label="Key">
        {d.key && d.rule ? (
          <button
            type="button"
            class="link-button"
            title="Peek at this key"
            onClick={() => ask("peek", { domain: d.domain, rule: d.rule, key: d.key! })}
          >
            <KeyView value={d.key} />
          </button>
        ) : d.rule ? (
          <KeyView value={d.key} hash={d.key_hash} />
        ) : (
          <span class="muted">–</span>
        )}
      </td>
      <td class="wrap-any" data-label="Request">
        <code>{escaped(`${d.method} ${d.path}`)}</code> <span class="muted small">{words(d.door ?? "")}</span>
      </td>
      <td class="num nowrap" data-label="Remaining">
        {d.rule ? `${count(d.remaining)} of ${count(d.limit)}` : "–"}
      </td>
      <td class="num nowrap" data-label="Retry after">
        {d.retry_after_ms === null ? "never" : d.retry_after_ms > 0 ? duration(d.retry_after_ms) : "–"}
      </td>
    </tr>
  );
}

function Filters(props: { filter: Filter; rules: readonly Rule[]; onChange: (f: Filter) => void }) {
  const { filter, rules, onChange } = props;
  const set = (some: Partial<Filter>) => onChange({ ...filter, ...some });
  const domains = [...new Set(rules.map((r) => r.domain))];
  const names = rules.filter((r) => filter.domain === "" || r.domain === filter.domain).map((r) => r.name);
  return (
    <form class="filters part-body" onSubmit={(event) => event.preventDefault()} aria-label="Filter">
      <Choice
        label="Outcome"
        value={filter.outcome}
        options={anyOf(filter.outcome, outcomes)}
        onChange={(outcome) => set({ outcome })}
      />
      <Choice
        label="Domain"
        value={filter.domain}
        options={anyOf(filter.domain, domains)}
        onChange={(domain) => set({ domain, rule: "" })}
      />
      <Choice
        label="Rule"
        value={filter.rule}
        options={anyOf(filter.rule, [...new Set(names)])}
        onChange={(rule) => set({ rule })}
      />
      <div class="field">
        <label for="filter-key">Key contains</label>
        <input
          id="filter-key"
          class="input"
          data-filter
          value={filter.key}
          spellcheck={false}
          autocomplete="off"
          placeholder="198.51.100.7"
          onInput={(e) => set({ key: e.currentTarget.value.trim() })}
        />
      </div>
      <div class="field">
        <label for="filter-sample">Sample</label>
        <select
          id="filter-sample"
          class="input"
          value={filter.sample}
          onChange={(e) => set({ sample: e.currentTarget.value })}
        >
          {samples.map(([value, text]) => (
            <option key={value} value={value}>
              {text}
            </option>
          ))}
        </select>
      </div>
    </form>
  );
}

const samples = [
  ["1", "all"],
  ["0.1", "1 in 10"],
  ["0.01", "1 in 100"],
  ["0.001", "1 in 1,000"],
] as const;

/** The options of a filter. A value from a link is shown even if it does not exist. */
function anyOf(value: string, options: readonly string[]): [string, string][] {
  const all = value && !options.includes(value) ? [value, ...options] : options;
  return [["", "any"], ...all.map((o): [string, string] => [o, words(o)])];
}

/** Reads the filter from the hash of a link. */
export function fromHash(hash: string): Filter {
  const params = new URLSearchParams(hash.replace(/^#/, ""));
  const names = Object.keys(everything) as (keyof Filter)[];
  return Object.fromEntries(
    names.map((name) => [name, params.get(name) ?? everything[name]]),
  ) as unknown as Filter;
}

function toHash(filter: Filter): string {
  const params = new URLSearchParams();
  for (const name of Object.keys(everything) as (keyof Filter)[]) {
    if (filter[name] !== everything[name]) params.set(name, filter[name]);
  }
  return params.size > 0 ? `#${params}` : location.pathname + location.search;
}
