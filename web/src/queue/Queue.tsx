import { useState } from "preact/hooks";
import "../ui/ui.css";
import { type Problem, post } from "../data/api.ts";
import { usePoll } from "../data/poll.ts";
import type { QueueItem, QueueState } from "../data/types.ts";
import { Segments } from "../shell/Segments.tsx";
import { Command } from "../ui/Command.tsx";
import { Dialog } from "../ui/Dialog.tsx";
import { bytes, count, duration, escaped } from "../ui/format.ts";
import { KeyView } from "../ui/KeyView.tsx";
import { Nothing, Panel, Trouble } from "../ui/Panel.tsx";
import { Time } from "../ui/Time.tsx";
import { Scroll } from "../ui/table.tsx";
import { say } from "../ui/toast.tsx";

const example = `on_limit:
  action: queue`;

/** The queue page: requests waiting to be sent, and dead letters. */
export function Queue() {
  const { data, problem } = usePoll<{ queues: QueueState[] }>("/v1/queue", 2000).state.value;
  const queues = data?.queues ?? [];
  return (
    <div class="page">
      <header class="intro">
        <h1>Queue</h1>
        <p class="muted">
          Requests over a limit that were accepted and are sent to the backend as soon as the limit allows.
        </p>
      </header>
      <Panel title="Queues" about="One for each rule with action: queue.">
        {problem && <Trouble problem={problem} what="Queue" absent={<Teach />} />}
        {data && queues.length === 0 && (
          <Nothing title="No rule uses the queue.">
            <Teach />
          </Nothing>
        )}
        {queues.length > 0 && <Queues list={queues} />}
      </Panel>
      {queues.length > 0 && <Items />}
    </div>
  );
}

function Teach() {
  return (
    <>
      <p>
        A rule can queue requests over its limit and send them later instead of refusing them. Add to a rule
        of the proxy:
      </p>
      <Command label="the setting" text={example} />
    </>
  );
}

function Queues(props: { list: readonly QueueState[] }) {
  return (
    <Scroll label="Table of queues">
      <table class="table">
        <thead>
          <tr>
            <th scope="col">Rule</th>
            <th scope="col" class="num">
              Waiting
            </th>
            <th scope="col" class="num">
              Size
            </th>
            <th scope="col" class="num">
              Oldest
            </th>
            <th scope="col" class="num">
              In flight
            </th>
            <th scope="col" class="num">
              Delivered
            </th>
            <th scope="col" class="num">
              Failed attempts
            </th>
            <th scope="col" class="num">
              Dead letters
            </th>
          </tr>
        </thead>
        <tbody>
          {props.list.map((q) => (
            <tr key={`${q.domain} ${q.rule}`} data-queue={`${q.domain}/${q.rule}`}>
              <th scope="row">
                {q.rule} <span class="muted small">{q.domain}</span>
              </th>
              <td class="num">{count(q.depth)}</td>
              <td class="num nowrap">{bytes(q.bytes)}</td>
              <td class="num nowrap">{q.depth > 0 ? duration(q.oldest_age_ms) : "–"}</td>
              <td class="num">{count(q.in_flight)}</td>
              <td class="num">{count(q.delivered)}</td>
              <td class="num">{count(q.failed)}</td>
              <td class={`num ${q.dead > 0 ? "refused-text" : ""}`}>{count(q.dead)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

type State = "pending" | "dead";

/** The oldest requests, with buttons to retry or drop them. */
function Items() {
  const [state, setState] = useState<State>("pending");
  const poll = usePoll<{ items: QueueItem[] }>(`/v1/queue/items?state=${state}&n=100`, 3000);
  const { data, problem } = poll.state.value;
  const items = data?.items ?? [];
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [dropping, setDropping] = useState<readonly string[]>();
  const ids = items.map((item) => item.id).filter((id) => chosen.has(id));
  const toggle = (id: string, on: boolean) => {
    const next = new Set(chosen);
    if (on) next.add(id);
    else next.delete(id);
    setChosen(next);
  };
  const act = async (verb: "retry" | "drop", which: readonly string[]) => {
    try {
      await post(`/v1/queue/${verb}`, { ids: which });
      const n = `${count(which.length)} ${which.length === 1 ? "request" : "requests"}`;
      say({ text: verb === "retry" ? `${n} will be retried.` : `${n} dropped.` });
      setChosen(new Set());
    } catch (error) {
      say({ text: (error as Problem).message, failed: true });
    }
    await poll.again();
  };
  return (
    <Panel
      title="Requests"
      about="The oldest 100."
      side={
        <>
          <button
            type="button"
            class="button small-button"
            disabled={ids.length === 0}
            onClick={() => void act("retry", ids)}
          >
            Retry {ids.length > 0 && count(ids.length)}
          </button>
          <button
            type="button"
            class="button small-button danger"
            disabled={ids.length === 0}
            onClick={() => setDropping(ids)}
          >
            Drop {ids.length > 0 && count(ids.length)}
          </button>
          <Segments
            legend="Which requests"
            value={state}
            options={[
              { value: "pending", text: "Waiting" },
              { value: "dead", text: "Dead letters" },
            ]}
            onChange={setState}
          />
        </>
      }
    >
      {problem && <Trouble problem={problem} what="Requests" absent="This server does not list them." />}
      {data && items.length === 0 && (
        <Nothing title={state === "dead" ? "No dead letters." : "No requests are waiting."}>
          {state === "dead" && "Requests that could not be delivered appear here."}
        </Nothing>
      )}
      {items.length > 0 && (
        <Scroll label="Queued requests">
          <table class="table">
            <thead>
              <tr>
                <th scope="col">
                  <input
                    type="checkbox"
                    aria-label="Select all"
                    checked={ids.length === items.length}
                    onChange={(e) =>
                      setChosen(new Set(e.currentTarget.checked ? items.map((i) => i.id) : []))
                    }
                  />
                </th>
                <th scope="col">Request</th>
                <th scope="col">Rule and key</th>
                <th scope="col">Accepted</th>
                <th scope="col" class="num">
                  Attempts
                </th>
                <th scope="col">Last error</th>
              </tr>
            </thead>
            <tbody>
              {items.map((item) => (
                <tr key={item.id}>
                  <td>
                    <input
                      type="checkbox"
                      aria-label={`Select ${item.id}`}
                      checked={chosen.has(item.id)}
                      onChange={(e) => toggle(item.id, e.currentTarget.checked)}
                    />
                  </td>
                  <td class="wrap-any">
                    <code>{escaped(`${item.method} ${item.uri}`)}</code>
                    <code class="muted small block">{item.id}</code>
                  </td>
                  <td class="name">
                    {item.rule}{" "}
                    {(item.key || item.key_hash) && <KeyView value={item.key} hash={item.key_hash} />}
                  </td>
                  <td class="nowrap">
                    <Time at={item.accepted_at} />
                  </td>
                  <td class="num">
                    {count(item.attempts ?? 0)}
                    {item.next_attempt_at && Date.parse(item.next_attempt_at) > 0 && (
                      <span class="muted small block">
                        next <Time at={item.next_attempt_at} />
                      </span>
                    )}
                  </td>
                  <td class="wrap-any small">
                    {(item.last_error && escaped(item.last_error)) || <span class="muted">–</span>}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
      {dropping && (
        <Dialog
          title={`Drop ${count(dropping.length)} ${dropping.length === 1 ? "request" : "requests"}?`}
          onClose={() => setDropping(undefined)}
        >
          <p>They will never reach the backend, although they were accepted. This cannot be undone.</p>
          <div class="dialog-buttons">
            <button type="button" class="button" onClick={() => setDropping(undefined)}>
              Cancel
            </button>
            <button
              type="button"
              class="button danger-solid"
              onClick={() => {
                setDropping(undefined);
                void act("drop", dropping);
              }}
            >
              Drop
            </button>
          </div>
        </Dialog>
      )}
    </Panel>
  );
}
