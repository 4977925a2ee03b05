import { useState } from "preact/hooks";
import { usePoll } from "../data/poll.ts";
import type { TopRule } from "../data/types.ts";
import { KeyButtons } from "../keys/Actions.tsx";
import { Segments } from "../shell/Segments.tsx";
import { count, share } from "../ui/format.ts";
import { KeyView } from "../ui/KeyView.tsx";
import { Nothing, Panel, Trouble } from "../ui/Panel.tsx";
import { usePages } from "../ui/table.tsx";

type By = "refused" | "active";

/** One key of any rule. */
export type Offender = TopRule["keys"][number] & {
  domain: string;
  rule: string;
  /** There were too many requests to look at each, so a few stand for all. */
  estimated: boolean;
};

/** The keys of all rules, or of one, the most frequent first. */
export function flatten(rules: readonly TopRule[], only: string): Offender[] {
  return rules
    .filter((r) => only === "" || JSON.stringify([r.domain, r.rule]) === only)
    .flatMap((r) =>
      r.keys.map((key) => ({ ...key, domain: r.domain, rule: r.rule, estimated: r.sampled > 0 })),
    )
    .sort((a, b) => b.count - a.count);
}

/** The keys that are refused or ask most, with what can be done about them. */
export function Offenders() {
  const [by, setBy] = useState<By>("refused");
  const [only, setOnly] = useState("");
  const poll = usePoll<{ rules: TopRule[] }>(`/v1/top?by=${by}&n=20`, 2000);
  const { data, problem } = poll.state.value;
  const rules = data?.rules ?? [];
  const list = flatten(rules, only);
  const { shown, pager } = usePages(list, 8);
  return (
    <Panel
      title="Top keys"
      about="In the last five to ten minutes. ±: how much too high a count may be. ≈: estimated."
      side={
        <>
          {rules.length > 1 && (
            <select
              class="input auto"
              aria-label="Rule"
              value={only}
              onChange={(e) => setOnly(e.currentTarget.value)}
            >
              <option value="">all rules</option>
              {rules.map((r) => (
                <option key={`${r.domain} ${r.rule}`} value={JSON.stringify([r.domain, r.rule])}>
                  {r.rule}
                </option>
              ))}
            </select>
          )}
          <Segments
            legend="Ranked by"
            value={by}
            options={[
              { value: "refused", text: "Most refused" },
              { value: "active", text: "Most active" },
            ]}
            onChange={setBy}
          />
        </>
      }
    >
      {problem && <Trouble problem={problem} what="Top keys" absent="This Headgate does not count them." />}
      {data && list.length === 0 && (
        <Nothing title={by === "refused" ? "Nobody was refused." : "Nobody asked."}>
          {by === "refused" && "Keys appear here as soon as a rule refuses them."}
        </Nothing>
      )}
      {shown.length > 0 && (
        <ol class="offenders">
          {shown.map((o) => (
            <Row key={JSON.stringify([o.domain, o.rule, o.key, o.key_hash])} offender={o} by={by} />
          ))}
        </ol>
      )}
      {pager}
    </Panel>
  );
}

function Row(props: { offender: Offender; by: By }) {
  const o = props.offender;
  return (
    <li data-key={o.key?.join(" ")} data-rule={o.rule}>
      <span class="offender-name">
        <KeyView value={o.key} hash={o.key_hash} />
        <span>
          {o.rule} <span class="muted small">{o.domain}</span>
        </span>
      </span>
      <span class="offender-count num">
        {o.estimated && (
          <span class="muted" title="Estimated: there were too many requests to look at each">
            ≈{" "}
          </span>
        )}
        <b>{count(o.count)}</b>
        {o.error > 0 && <span class="muted small"> ±{count(o.error)}</span>}{" "}
        {props.by === "refused" ? "refused" : "requests"}
        <span
          class="muted small block"
          title={`Of all that ${o.rule} ${props.by === "refused" ? "refused" : "was asked"}`}
        >
          {share(o.share, 1)} of the rule’s
        </span>
      </span>
      {o.key ? (
        <KeyButtons target={{ domain: o.domain, rule: o.rule, key: o.key }} peek />
      ) : (
        <span class="muted small">Keys are hashed here (admin.keys), so nothing can be done to them.</span>
      )}
    </li>
  );
}
