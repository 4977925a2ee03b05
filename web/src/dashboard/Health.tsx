import type { ComponentChildren } from "preact";
import type { Polled } from "../data/poll.ts";
import { usePoll } from "../data/poll.ts";
import type { QueueState, Status } from "../data/types.ts";
import { bytes, count, duration, share, words } from "../ui/format.ts";
import { Panel, Trouble } from "../ui/Panel.tsx";
import { Time } from "../ui/Time.tsx";
import { CandidatePanel } from "./CandidatePanel.tsx";

/** What is wrong now, if anything is. */
export function Alarms(props: { status: Polled<Status>; circuit: string | undefined; lost: boolean }) {
  const { data } = props.status;
  if (props.lost) {
    return (
      <div role="status" class="alarms">
        <p class="alarm refused">
          <b>Headgate does not answer.</b> What this page shows is the last that it received. Check that the
          process runs, and its log.
        </p>
      </div>
    );
  }
  const broken = data && (!data.store.healthy || (props.circuit ?? data.store.circuit) !== "closed");
  return (
    <div role="status" class="alarms">
      {broken && (
        <p class="alarm refused">
          <b>The store does not answer.</b> Each rule decides by its <code>on_store_error</code>.{" "}
          {data.store.error && <span class="wrap-any">{data.store.error}</span>}
        </p>
      )}
      {data?.rules.last_error && (
        <p class="alarm delayed">
          <b>The rule files cannot be read.</b> The rules loaded <Time at={data.rules.loaded_at} /> stay in
          force. <span class="wrap-any mono small">{data.rules.last_error}</span>
        </p>
      )}
      {data && !data.ready && !broken && (
        <p class="alarm delayed">
          <b>Not ready.</b> Load balancers are told not to send requests here.
        </p>
      )}
    </div>
  );
}

/** How the store, the rules, the queues and the doors are. */
export function Health(props: {
  status: Polled<Status>;
  circuit: string | undefined;
  keys: number | undefined;
  /** Nobody knows how it is now. */
  lost: boolean;
}) {
  const { lost } = props;
  const { data, problem } = props.status;
  const queue = usePoll<{ queues: QueueState[] }>("/v1/queue", 5000).state.value;
  if (!data) {
    return (
      <Panel title="State">
        {problem && <Trouble problem={problem} what="State" absent="This Headgate does not tell it." />}
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
          <Fact name="Circuit breaker">
            <State
              lost={lost}
              good={circuit === "closed"}
              text={circuit === "closed" ? "closed (healthy)" : words(circuit)}
            />
          </Fact>
          <Fact name={store.kind === "memory" ? "Keys" : "Keys in the local stand-in"}>
            {count(keys)}
            {store.max_keys > 0 && (
              <span class="muted">
                {" "}
                of {count(store.max_keys)} ({share(keys, store.max_keys)})
              </span>
            )}
          </Fact>
          <Fact name="Memory">{bytes(store.bytes)}</Fact>
          <Fact name="Evicted to make room">{count(store.evicted)}</Fact>
          {store.kind !== "memory" && (
            <Fact name="Refusals known without asking">{count(store.deny_cache.hits)}</Fact>
          )}
        </Facts>
      </Panel>
      <Panel
        title="Rules"
        side={
          <State
            lost={lost}
            good={!rules.last_error}
            text={rules.last_error ? "older than the files" : "up to date"}
          />
        }
      >
        <Facts>
          <Fact name="In force">
            <a href="./rules">{count(rules.rules)}</a> in {count(rules.domains)}{" "}
            {rules.domains === 1 ? "domain" : "domains"}
          </Fact>
          <Fact name="From">
            {rules.source === "built_in"
              ? "built in"
              : `${count(rules.files)} ${rules.files === 1 ? "file" : "files"}`}
            {rules.source === "xds" && " (control plane)"}
          </Fact>
          <Fact name="Loaded">
            <Time at={rules.loaded_at} />
          </Fact>
          <Fact name="Loads">
            {count(rules.reloads_ok)} good, {count(rules.reloads_failed)} failed
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
    <Panel title="Queue" side={data && dead > 0 && <State good={false} text={`${count(dead)} dead`} />}>
      {data && data.queues.length > 0 ? (
        <Facts>
          <Fact name="Waiting">
            <a href="./queue">{count(sum((q) => q.depth))}</a>{" "}
            <span class="muted">{bytes(sum((q) => q.bytes))}</span>
          </Fact>
          <Fact name="Oldest">{duration(Math.max(...data.queues.map((q) => q.oldest_age_ms)))}</Fact>
          <Fact name="Delivered">{count(sum((q) => q.delivered))}</Fact>
          <Fact name="Dead letters">{count(dead)}</Fact>
        </Facts>
      ) : (
        <p class="muted small part-body">
          {!problem
            ? "No rule queues what is over its limit."
            : problem.absent
              ? "No queue is set up."
              : problem.message}
        </p>
      )}
    </Panel>
  );
}

/** How something is, or, while the connection is lost, that nobody knows. */
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
