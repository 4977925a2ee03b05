import type { ComponentChildren } from "preact";
import type { Polled } from "../data/poll.ts";
import { usePoll } from "../data/poll.ts";
import type { QueueState, Status } from "../data/types.ts";
import { bytes, count, duration, share, words } from "../ui/format.ts";
import { Panel, Trouble } from "../ui/Panel.tsx";
import { Time } from "../ui/Time.tsx";
import { CandidatePanel } from "./CandidatePanel.tsx";
import { Warnings } from "./Warnings.tsx";

/** Current problems, if any. */
export function Alarms(props: { status: Polled<Status>; circuit: string | undefined; lost: boolean }) {
  const { data } = props.status;
  if (props.lost) {
    return (
      <div role="status" class="alarms">
        <p class="alarm refused">
          <b>The server does not respond.</b> This page shows the last data it received. Check that Headgate
          is running, and read its log.
        </p>
      </div>
    );
  }
  const broken = data && (!data.store.healthy || (props.circuit ?? data.store.circuit) !== "closed");
  return (
    <div role="status" class="alarms">
      {broken && (
        <p class="alarm refused">
          <b>The store does not respond.</b> Each rule applies its <code>on_store_error</code> setting.{" "}
          {data.store.error && <span class="wrap-any">{data.store.error}</span>}
        </p>
      )}
      {data?.rules.last_error && (
        <p class="alarm delayed">
          <b>The rule files could not be loaded.</b> The rules loaded <Time at={data.rules.loaded_at} /> stay
          active. <span class="wrap-any mono small">{data.rules.last_error}</span>
        </p>
      )}
      {data && !data.ready && !broken && (
        <p class="alarm delayed">
          <b>Not ready.</b> The readiness check fails, so load balancers send no requests to this server.
        </p>
      )}
      <Warnings />
    </div>
  );
}

/** The state of the store, the rules, the queue and the process. */
export function Health(props: {
  status: Polled<Status>;
  circuit: string | undefined;
  keys: number | undefined;
  /** The connection is lost, so the current state is unknown. */
  lost: boolean;
}) {
  const { lost } = props;
  const { data, problem } = props.status;
  const queue = usePoll<{ queues: QueueState[] }>("/v1/queue", 5000).state.value;
  if (!data) {
    return (
      <Panel title="Status">
        {problem && (
          <Trouble problem={problem} what="Status" absent="This server does not report its status." />
        )}
      </Panel>
    );
  }
  const { store, rules } = data;
  const circuit = props.circuit ?? store.circuit;
  const keys = props.keys ?? store.keys;
  return (
    <div class="health">
      <Panel
        title="Store"
        side={<State lost={lost} good={store.healthy} text={store.healthy ? "healthy" : "failing"} />}
      >
        <Facts>
          <Fact name="Kind">{store.kind}</Fact>
          {store.kind !== "memory" && (
            <Fact name="Circuit breaker">
              <State
                lost={lost}
                good={circuit === "closed"}
                text={circuit === "closed" ? "closed (healthy)" : words(circuit)}
              />
            </Fact>
          )}
          <Fact name={store.kind === "memory" ? "Keys" : "Keys in local fallback"}>
            {count(keys)}
            {store.max_keys > 0 && (
              <span class="muted">
                {" "}
                of {count(store.max_keys)} ({share(keys, store.max_keys)})
              </span>
            )}
          </Fact>
          <Fact name="Memory">{bytes(store.bytes)}</Fact>
          <Fact name="Evicted keys">{count(store.evicted)}</Fact>
          {store.kind !== "memory" && <Fact name="Deny cache hits">{count(store.deny_cache.hits)}</Fact>}
        </Facts>
      </Panel>
      <Panel
        title="Rules"
        side={
          <State
            lost={lost}
            good={!rules.last_error}
            text={rules.last_error ? "reload failed" : "up to date"}
          />
        }
      >
        <Facts>
          <Fact name="Active">
            <a href="./rules">{count(rules.rules)}</a> in {count(rules.domains)}{" "}
            {rules.domains === 1 ? "domain" : "domains"}
          </Fact>
          <Fact name="Source">
            {rules.source === "built_in"
              ? "built in"
              : `${count(rules.files)} ${rules.files === 1 ? "file" : "files"}`}
            {rules.source === "xds" && " (control plane)"}
          </Fact>
          <Fact name="Loaded">
            <Time at={rules.loaded_at} />
          </Fact>
          <Fact name="Loads">
            {count(rules.reloads_ok)} succeeded, {count(rules.reloads_failed)} failed
          </Fact>
        </Facts>
      </Panel>
      <Queues state={queue} />
      {data.candidate && <CandidatePanel />}
      <Panel
        title="Process"
        side={<State lost={lost} good={data.ready} text={data.ready ? "ready" : "not ready"} />}
      >
        <Facts>
          <Fact name="Version">
            {data.version} <span class="muted">({data.go})</span>
          </Fact>
          <Fact name="Started">
            <Time at={data.started} />
          </Fact>
          {data.doors.map((door) => (
            <Fact key={door.name} name={`Listener: ${words(door.name)}`}>
              <code>{door.address}</code>
            </Fact>
          ))}
        </Facts>
      </Panel>
    </div>
  );
}

function Queues(props: { state: Polled<{ queues: QueueState[] }> }) {
  const { data, problem } = props.state;
  const sum = (of: (q: QueueState) => number) => (data?.queues ?? []).reduce((n, q) => n + of(q), 0);
  const dead = sum((q) => q.dead);
  return (
    <Panel
      title="Queue"
      side={
        data &&
        dead > 0 && <State good={false} text={`${count(dead)} dead ${dead === 1 ? "letter" : "letters"}`} />
      }
    >
      {data && data.queues.length > 0 ? (
        <Facts>
          <Fact name="Waiting">
            <a href="./queue">{count(sum((q) => q.depth))}</a>{" "}
            <span class="muted">{bytes(sum((q) => q.bytes))}</span>
          </Fact>
          <Fact name="Oldest request">{duration(Math.max(...data.queues.map((q) => q.oldest_age_ms)))}</Fact>
          <Fact name="Delivered">{count(sum((q) => q.delivered))}</Fact>
          <Fact name="Dead letters">{count(dead)}</Fact>
        </Facts>
      ) : (
        <p class="muted small part-body">
          {!problem
            ? "No rule uses the queue."
            : problem.absent
              ? "No queue is configured."
              : problem.message}
        </p>
      )}
    </Panel>
  );
}

/** A state as a badge, or "unknown" while the connection is lost. */
export function State(props: { good: boolean; text: string; lost?: boolean }) {
  if (props.lost) return <span class="badge">unknown</span>;
  return <span class={`badge ${props.good ? "allowed" : "refused"}`}>{props.text}</span>;
}

export function Facts(props: { children: ComponentChildren }) {
  return <dl class="facts part-body">{props.children}</dl>;
}

export function Fact(props: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{props.name}</dt>
      <dd class="num">{props.children}</dd>
    </div>
  );
}
