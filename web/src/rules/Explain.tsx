import { useEffect, useState } from "preact/hooks";
import { type Problem, post } from "../data/api.ts";
import { partOf } from "../data/regions.ts";
import type { ExplainedRule, Explanation, Rule } from "../data/types.ts";
import { absolute, count, duration, words } from "../ui/format.ts";
import { Icon } from "../ui/Icon.tsx";
import { Panel } from "../ui/Panel.tsx";
import { attributesOf, type Pair, suggest } from "./attributes.ts";

/** A form for a request, which shows at once the rules that apply to it and why. */
export function Explain(props: { rules: readonly Rule[] }) {
  const domains = [...new Set(props.rules.map((r) => r.domain))];
  const [chosen, setChosen] = useState("");
  const domain = domains.includes(chosen) ? chosen : (domains[0] ?? "");
  const [pairs, setPairs] = useState<readonly Pair[]>([
    { name: "method", value: "GET" },
    { name: "path", value: "/login" },
    { name: "client_ip", value: "198.51.100.7" },
  ]);
  const { answer, problem, asking } = useExplanation(domain, pairs);
  const set = (i: number, some: Partial<Pair>) =>
    setPairs(pairs.map((pair, j) => (i === j ? { ...pair, ...some } : pair)));
  const known = suggest(props.rules.filter((r) => r.domain === domain));
  return (
    <Panel
      title="Explain a request"
      about="Which rules apply to a request, and what they would decide now. Nothing is charged."
      class="explain"
    >
      <div class="explain-cols">
        <form class="explain-form" onSubmit={(event) => event.preventDefault()} aria-label="The request">
          <div class="field">
            <label for="explain-domain">Domain</label>
            <select
              id="explain-domain"
              class="input"
              value={domain}
              onChange={(e) => setChosen(e.currentTarget.value)}
            >
              {domains.map((d) => (
                <option key={d} value={d}>
                  {d}
                </option>
              ))}
            </select>
          </div>
          <fieldset class="pairs">
            <legend class="small muted">Attributes</legend>
            <datalist id="explain-names">
              {known.map((name) => (
                <option key={name} value={name} />
              ))}
            </datalist>
            {pairs.map((pair, i) => (
              // Pairs are identified by their position only.
              <div class="pair" key={i}>
                <input
                  class="input mono"
                  aria-label={`Attribute ${i + 1}`}
                  list="explain-names"
                  value={pair.name}
                  placeholder="header:X-Api-Key"
                  spellcheck={false}
                  autocomplete="off"
                  onInput={(e) => set(i, { name: e.currentTarget.value })}
                />
                <input
                  class="input mono"
                  aria-label={`Value of ${pair.name || `attribute ${i + 1}`}`}
                  value={pair.value}
                  spellcheck={false}
                  autocomplete="off"
                  onInput={(e) => set(i, { value: e.currentTarget.value })}
                />
                <button
                  type="button"
                  class="button quiet small-button"
                  aria-label={`Remove ${pair.name || `attribute ${i + 1}`}`}
                  onClick={() => setPairs(pairs.filter((_, j) => i !== j))}
                >
                  <Icon name="close" />
                </button>
              </div>
            ))}
            <button
              type="button"
              class="button small-button"
              onClick={() =>
                setPairs([
                  ...pairs,
                  { name: known.find((n) => !pairs.some((p) => p.name === n)) ?? "", value: "" },
                ])
              }
            >
              Add attribute
            </button>
          </fieldset>
        </form>
        <div class="explain-answer" aria-live="polite" aria-busy={asking}>
          {problem && (
            <p class="error">{problem.absent ? "This server does not explain requests." : problem.message}</p>
          )}
          {!problem && answer && <Answer answer={answer} rules={props.rules} />}
          {!problem && !answer && <p class="muted">{domain ? "Loading…" : "No rules are configured."}</p>}
        </div>
      </div>
    </Panel>
  );
}

/** Requests an explanation when typing pauses. */
function useExplanation(domain: string, pairs: readonly Pair[]) {
  const [answer, setAnswer] = useState<Explanation>();
  const [problem, setProblem] = useState<Problem>();
  const [asking, setAsking] = useState(false);
  const body = JSON.stringify({ domain, attributes: attributesOf(pairs), cost: 1 });
  useEffect(() => {
    if (!domain) return;
    let over = false;
    setAsking(true);
    const timer = setTimeout(async () => {
      try {
        const found = await post<Explanation>("/v1/explain", JSON.parse(body));
        if (over) return;
        setAnswer(found);
        setProblem(undefined);
      } catch (error) {
        if (!over) setProblem(error as Problem);
      }
      if (!over) setAsking(false);
    }, 250);
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [body]);
  return { answer, problem, asking };
}

function Answer(props: { answer: Explanation; rules: readonly Rule[] }) {
  const { answer } = props;
  const written = (r: ExplainedRule) => {
    const rule = props.rules.find((known) => known.domain === answer.domain && known.name === r.rule);
    return rule && !r.overridden ? `${rule.rate}, ${words(rule.algorithm)}` : r.limit;
  };
  const rules = answer.parts.flatMap((part) => part.rules);
  const applying = rules.filter((r) => r.applies);
  const others = rules.filter((r) => !r.applies);
  const onList = applying.some((r) => r.list === "deny" && r.enforced);
  const left = answer.parts.reduce((n, part) => n + (part.left_off ?? 0), 0);
  return (
    <>
      <p class={`verdict ${answer.allowed ? "allowed" : "refused"}`}>
        {answer.allowed ? "Would be allowed now" : "Would be refused now"}
        {answer.rule && (
          <span class="muted">
            {answer.allowed
              ? `; least remaining: ${answer.rule}`
              : ` by ${answer.rule}: ${words(answer.reason)}`}
          </span>
        )}
        {!answer.allowed && !onList && (
          <span class="muted">
            {answer.retry_after_ms === null
              ? ", never available again"
              : `, available again in ${duration(answer.retry_after_ms)}`}
          </span>
        )}
      </p>
      {answer.store_error && <p class="error">Counts are not available: {answer.store_error}</p>}
      <h3>
        {applying.length === 0
          ? "No rule applies"
          : `${count(applying.length)} ${applying.length === 1 ? "rule applies" : "rules apply"}`}
      </h3>
      <ul class="explained">
        {applying.map((r) => (
          <Applies key={`${r.at} ${r.rule}`} rule={r} limit={written(r)} />
        ))}
      </ul>
      {others.length > 0 && (
        <details open={others.length <= 6}>
          <summary>
            {count(others.length + left)}{" "}
            {others.length + left === 1 ? "rule does not apply" : "rules do not apply"}
          </summary>
          <ul class="explained">
            {others.slice(0, most).map((r) => (
              <li key={`${r.at} ${r.rule}`}>
                <b>{r.rule}</b> <code class="muted small">{r.at}</code>
                <ul class="why small">
                  {(r.why ?? []).map((w) => (
                    <li key={w.condition}>{sayWhy(w)}</li>
                  ))}
                </ul>
              </li>
            ))}
          </ul>
          {others.length + left > most && (
            <p class="muted small">{count(others.length + left - most)} more not shown.</p>
          )}
        </details>
      )}
    </>
  );
}

const most = 100;

/** Describes a condition that does not hold. */
function sayWhy(w: NonNullable<ExplainedRule["why"]>[number]) {
  return (
    <>
      <code>{w.condition}</code>: expected <code>{w.want}</code>, got <code>{w.got}</code>
    </>
  );
}

function Applies(props: { rule: ExplainedRule; limit: string }) {
  const r = props.rule;
  const c = r.count;
  return (
    <li>
      <p>
        <b>{r.rule}</b> <span class="muted">{props.limit}</span> <code class="muted small">{r.at}</code>{" "}
        {!r.enforced && <span class="badge shadowed">not enforced</span>}
        {r.overridden && <span class="badge">override</span>}
      </p>
      {r.limit_from && <p class="small">From {r.limit_from}</p>}
      {r.on_repeat && <p class="small">On repeat: {r.on_repeat}</p>}
      {r.soft && <p class="small">Marks requests {r.soft}</p>}
      {r.blocks && <p class="small">In blocks, which admit {r.blocks.bound}</p>}
      {r.regions?.home && <p class="small">Counted in {r.regions.home} for all regions.</p>}
      {r.regions && !r.regions.home && (
        <p class="small">
          Shared by regions ({r.regions.parts.map((p) => `${p.region} ${count(p.limit)}`).join(", ")}):{" "}
          {r.regions.bound}. Cut off, {r.regions.alone}.
        </p>
      )}
      <p class="small">
        Key:{" "}
        {r.key && r.key.length > 0
          ? r.key.map((part) => (
              <code key={part.attribute} class="key" title={part.attribute}>
                {part.attribute}={part.missing ? "(none)" : part.value}
              </code>
            ))
          : "all requests"}
      </p>
      {c && (
        <p class="small num">
          {r.banned_until && (
            <>
              <span class="badge refused">banned</span> until {absolute(Date.parse(r.banned_until))};{" "}
            </>
          )}
          {c.reason === "fail_open" || c.reason === "fail_closed"
            ? "The store did not answer: what is used is unknown"
            : `${count(c.used)} of ${count(partOf(r.regions) ?? c.limit)} used, ${count(c.remaining)} remaining`}
          {c.delay_ms ? `, delayed by ${duration(c.delay_ms)}` : ""}
          {!c.allowed && c.retry_after_ms !== null && `, available again in ${duration(c.retry_after_ms)}`}
        </p>
      )}
    </li>
  );
}
