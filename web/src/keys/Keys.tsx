import { useEffect, useState } from "preact/hooks";
import "../ui/ui.css";
import { usePoll } from "../data/poll.ts";
import type { Override, Rule } from "../data/types.ts";
import { Choice } from "../ui/Choice.tsx";
import { escaped, unescaped } from "../ui/format.ts";
import { Nothing, Panel, Trouble } from "../ui/Panel.tsx";
import { Actions, KeyButtons } from "./Actions.tsx";
import { ask, type Target } from "./actions.ts";
import { Overrides } from "./Overrides.tsx";
import { WouldBan } from "./WouldBan.tsx";

/** The keys page: find and change a key, and list bans and overrides. */
export function Keys() {
  const rules = usePoll<{ rules: Rule[] }>("/v1/rules", 30_000);
  const overrides = usePoll<{ overrides: Override[] }>("/v1/overrides", 5000);
  const { data, problem } = rules.state.value;
  return (
    <div class="page">
      <header class="intro">
        <h1>Keys</h1>
        <p class="muted">
          A key is the value that a rule counts requests by, such as a client address or an API key. Peek at a
          key, reset its usage, grant it extra requests, ban it, or override its limit.
        </p>
      </header>
      <Panel title="Find a key">
        {problem && !data && (
          <Trouble problem={problem} what="Rules" absent="This server does not list its rules." />
        )}
        {data && data.rules.length === 0 && (
          <Nothing title="No rules are configured, so nothing is counted." />
        )}
        {data && data.rules.length > 0 && <Find rules={data.rules} />}
      </Panel>
      <Overrides poll={overrides} />
      <WouldBan />
      <Actions />
    </div>
  );
}

/** Reads the key from the hash of a link: #domain=…&rule=…&key=…&key=… */
export function fromHash(hash: string): { domain: string; rule: string; key: string[] } {
  const params = new URLSearchParams(hash.replace(/^#/, ""));
  return { domain: params.get("domain") ?? "", rule: params.get("rule") ?? "", key: params.getAll("key") };
}

function Find(props: { rules: readonly Rule[] }) {
  const { rules } = props;
  const [linked] = useState(() => fromHash(location.hash));
  const find = (domain: string, rule: string) => rules.find((r) => r.domain === domain && r.name === rule);
  const [chosen, setChosen] = useState<Rule>(() => find(linked.domain, linked.rule) ?? rules[0]!);
  const [parts, setParts] = useState<readonly string[]>(linked.key.map(escaped));
  // The rule may have changed in a reload.
  const rule = find(chosen.domain, chosen.name) ?? rules[0]!;
  const key = rule.key.map((_, i) => parts[i] ?? "");
  const target: Target = {
    domain: rule.domain,
    rule: rule.name,
    key: key.map((part) => unescaped(part) || null),
  };
  const ready = key.every(Boolean);
  useEffect(() => {
    const params = new URLSearchParams({ domain: rule.domain, rule: rule.name });
    for (const part of key) params.append("key", unescaped(part));
    history.replaceState(null, "", `#${params}`);
  }, [rule.domain, rule.name, key.join("\n")]);
  return (
    <form
      class="find"
      onSubmit={(event) => {
        event.preventDefault();
        if (ready) ask("peek", target);
      }}
    >
      <div class="find-fields">
        <Choice
          label="Rule"
          value={JSON.stringify([rule.domain, rule.name])}
          options={rules.map((r) => [
            JSON.stringify([r.domain, r.name]),
            `${r.domain}: ${r.name}, ${r.rate}`,
          ])}
          onChange={(value) => {
            const [domain, name] = JSON.parse(value) as [string, string];
            setChosen(find(domain, name)!);
          }}
        />
        {rule.key.map((attribute, i) => (
          <div class="field" key={attribute}>
            <label for={`find-${i}`}>{attribute}</label>
            <input
              id={`find-${i}`}
              class="input"
              value={key[i]}
              spellcheck={false}
              autocomplete="off"
              data-filter={i === 0 ? true : undefined}
              placeholder={attribute === "client_ip" ? "198.51.100.7" : undefined}
              onInput={(e) => setParts(key.map((part, j) => (i === j ? e.currentTarget.value : part)))}
            />
          </div>
        ))}
        <button type="submit" class="button primary" disabled={!ready}>
          Peek
        </button>
      </div>
      {rule.key.length === 0 && <p class="muted small">This rule has one counter for all requests.</p>}
      {ready && (
        <div class="find-actions">
          <span class="muted small">Or change it directly:</span>
          <KeyButtons target={target} />
        </div>
      )}
    </form>
  );
}
