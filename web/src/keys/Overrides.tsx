import { useEffect, useState } from "preact/hooks";
import type { Poll } from "../data/poll.ts";
import type { Override } from "../data/types.ts";
import { count, escaped, keyText } from "../ui/format.ts";
import { KeyView } from "../ui/KeyView.tsx";
import { Nothing, Panel, Trouble } from "../ui/Panel.tsx";
import { Time } from "../ui/Time.tsx";
import { Scroll, usePages } from "../ui/table.tsx";
import { wanted } from "../ui/wanted.ts";
import { clear, done, type Target, unban } from "./actions.ts";

/** The active bans and overrides. */
export function Overrides(props: { poll: Poll<{ overrides: Override[] }> }) {
  const { data, problem } = props.poll.state.value;
  const [text, setText] = useState("");
  const change = done.value;
  useEffect(() => {
    if (change > 0) void props.poll.again();
  }, [change]);
  const all = data?.overrides ?? [];
  const has = wanted(text);
  const list = all.filter((o) =>
    has([o.domain, o.rule, o.kind, o.reason, o.by, o.key_hash, ...(o.key ?? [])].join(" ")),
  );
  const { shown, pager } = usePages(list, 25, "bans and overrides");
  return (
    <Panel
      title="Bans and overrides"
      about="Set by operators, or by rules with on_repeat. They apply on every server that shares the store."
      side={
        all.length > 0 && (
          <input
            class="input filter"
            type="search"
            placeholder='Filter: words, "a phrase"'
            aria-label="Filter bans and overrides"
            data-filter
            value={text}
            onInput={(e) => setText(e.currentTarget.value)}
          />
        )
      }
    >
      {problem && (
        <Trouble problem={problem} what="Bans and overrides" absent="This server does not support them." />
      )}
      {data && list.length === 0 && (
        <Nothing title={all.length > 0 ? "No entries match the filter." : "No bans or overrides."}>
          {all.length === 0 && "Find a key above to ban it or to override its limit."}
        </Nothing>
      )}
      {shown.length > 0 && (
        <Scroll label="Table of bans and overrides">
          <table class="table">
            <thead>
              <tr>
                <th scope="col">Key</th>
                <th scope="col">Rule</th>
                <th scope="col">Effect</th>
                <th scope="col">Ends</th>
                <th scope="col">Reason</th>
                <th scope="col">By</th>
                <th scope="col">
                  <span class="hidden">Remove</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {shown.map((o) => (
                <Row key={JSON.stringify([o.domain, o.rule, o.key, o.key_hash, o.kind])} entry={o} />
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
      {pager}
    </Panel>
  );
}

function Row(props: { entry: Override }) {
  const o = props.entry;
  const { key } = o;
  const banned = o.kind === "ban";
  const back = (target: Target) =>
    banned
      ? unban(target, o.until, o.reason)
      : clear(target, {
          ...(o.rate ? { rate: o.rate } : {}),
          ...(o.burst ? { burst: o.burst } : {}),
          ...(o.until ? { until: o.until } : {}),
          ...(o.reason ? { reason: o.reason } : {}),
        });
  return (
    <tr>
      <td>
        <KeyView value={o.key} hash={o.key_hash} />
      </td>
      <td class="name">
        {o.rule} <span class="muted small">{o.domain}</span>
      </td>
      <td>
        {banned ? (
          <span class="badge refused">banned</span>
        ) : (
          <span class="badge">
            {o.rate}
            {o.burst ? `, burst ${count(o.burst)}` : ""}
          </span>
        )}
      </td>
      <td class="nowrap">
        <Time at={o.until} none="never" />
      </td>
      <td class="wrap-any">{o.reason ? escaped(o.reason) : <span class="muted">–</span>}</td>
      <td>
        {o.by ? escaped(o.by) : <span class="muted">–</span>}{" "}
        <span class="muted small">
          <Time at={o.created} none="" />
        </span>
      </td>
      <td class="num">
        {key ? (
          <button
            type="button"
            class="button small-button"
            aria-label={`${banned ? "Unban" : "Remove the override of"} ${keyText(key)} (${o.rule})`}
            onClick={() => void back({ domain: o.domain, rule: o.rule, key })}
          >
            {banned ? "Unban" : "Remove"}
          </button>
        ) : (
          <span class="muted small">remove with headgate keys</span>
        )}
      </td>
    </tr>
  );
}
