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
  /** The count was sampled because there were too many requests to count each. */
  estimated: boolean;
};

/** Lists the keys of all rules, or of one, most frequent first. */
export function flatten(rules: readonly TopRule[], only: string): Offender[] {
  return rules
    .filter((r) => only === "" || JSON.stringify([r.domain, r.rule]) === only)
    .flatMap((r) =>
      r.keys.map((key) => ({ ...key, domain: r.domain, rule: r.rule, estimated: r.sampled > 0 })),
    )
    .sort((a, b) => b.count - a.count);
}

/** The most refused or most active keys, with buttons to act on them. */
export function Offenders() {
  const [by, setBy] = useState<By>("refused");
  const [only, setOnly] = useState("");
  const poll = usePoll<{ rules: TopRule[] }>(`/v1/top?by=${by}&n=20`, 2000);
  const { data, problem } = poll.state.value;
  const rules = data?.rules ?? [];
  const list = flatten(rules, only);
  const { shown, pager } = usePages(list, 6, "top keys");
  return (
    <Panel
      title="Top keys"
      about="Last 5 to 10 minutes. ± is the possible overcount, ≈ an estimate."
      side={
        <>
          {rules.length > 1 && (
            <select
              class="input auto"
              aria-label="Rule"
              value={only}
              onChange={(e) => setOnly(e.currentTarget.value)}
            >
              <option value="">All rules</option>
              {rules.map((r) => (
                <option key={`${r.domain} ${r.rule}`} value={JSON.stringify([r.domain, r.rule])}>
                  {r.rule}
                </option>
              ))}
            </select>
          )}
          <Segments
            legend="Rank by"
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
      {problem && <Trouble problem={problem} what="Top keys" absent="This server does not count them." />}
      {data && list.length === 0 && (
        <Nothing title={by === "refused" ? "No key was refused." : "No requests."}>
          {by === "refused" && "Keys appear here when a rule refuses them."}
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
          <span class="muted" title="Estimated from a sample">
            ≈{" "}
          </span>
        )}
        <b>{count(o.count)}</b>
        {o.error > 0 && <span class="muted small"> ±{count(o.error)}</span>}{" "}
        {props.by === "refused" ? "refused" : "requests"}
      </span>
      <span
        class="offender-share muted small num"
        title={`Share of all ${props.by === "refused" ? "refusals" : "requests"} of ${o.rule}`}
      >
        {share(o.share, 1)} of this rule
      </span>
      {o.key ? (
        <KeyButtons target={{ domain: o.domain, rule: o.rule, key: o.key }} peek />
      ) : (
        <span class="offender-hashed muted small">
          This key is hashed (admin.keys), so it cannot be changed here.
        </span>
      )}
    </li>
  );
}
