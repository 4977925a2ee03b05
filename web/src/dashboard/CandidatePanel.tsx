import { usePoll } from "../data/poll.ts";
import type { Candidate } from "../data/types.ts";
import { count, share } from "../ui/format.ts";
import { Panel } from "../ui/Panel.tsx";
import { Time } from "../ui/Time.tsx";
import { Fact, Facts, State } from "./Health.tsx";

const mostRules = 5;

/** The candidate: how its decisions differ from those of the active rules. */
export function CandidatePanel() {
  const { data, problem } = usePoll<Candidate>("/v1/candidate", 5000).state.value;
  if (!data) {
    return (
      <Panel title="Candidate">{problem && <p class="muted small part-body">{problem.message}</p>}</Panel>
    );
  }
  const comparing = data.state === "comparing";
  return (
    <Panel title="Candidate" side={<State good={comparing && !data.rules.last_error} text={data.state} />}>
      {data.rules.last_error && <p class="part-body wrap-any mono small">{data.rules.last_error}</p>}
      {comparing ? (
        <Comparison of={data} />
      ) : (
        <p class="muted small part-body">
          {data.state === "absent"
            ? "The candidate has no rule files."
            : "The candidate rules could not be loaded."}
        </p>
      )}
    </Panel>
  );
}

function Comparison(props: { of: Candidate }) {
  const c = props.of;
  return (
    <Facts>
      <Fact name="Compared">
        {count(c.requests)} <span class="muted">requests</span>
      </Fact>
      <Fact name="Newly refused">
        {count(c.newly_refused)} <span class="muted">{share(c.newly_refused, c.requests)}</span>
      </Fact>
      <Fact name="Newly allowed">
        {count(c.newly_allowed)} <span class="muted">{share(c.newly_allowed, c.requests)}</span>
      </Fact>
      {c.by.slice(0, mostRules).map((r) => (
        <Fact key={`${r.domain}/${r.rule}`} name={`Changed by ${r.rule}`}>
          {count(r.newly_refused)} <span class="muted">refused,</span> {count(r.newly_allowed)}{" "}
          <span class="muted">allowed</span>
        </Fact>
      ))}
      <Fact name="Since">
        <Time at={c.since ?? undefined} />
      </Fact>
    </Facts>
  );
}
