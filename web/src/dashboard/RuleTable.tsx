import { useState } from "preact/hooks";
import type { RuleSum, Sum } from "../data/history.ts";
import { count, perSecond, share } from "../ui/format.ts";
import { Nothing, Panel } from "../ui/Panel.tsx";
import { type Order, Scroll, SortHead, sorted, usePages } from "../ui/table.tsx";
import { wanted } from "../ui/wanted.ts";
import { view } from "./view.ts";

type Column = "rule" | "total" | "allowed" | "refused" | "delayed" | "queued" | "shadow" | "marked" | "near";

const values: Record<Column, (r: RuleSum) => string | number> = {
  rule: (r) => `${r.rule} ${r.domain}`,
  total: (r) => r.total,
  allowed: (r) => r.allowed,
  refused: (r) => r.refused,
  delayed: (r) => r.delayed,
  queued: (r) => r.queued,
  shadow: (r) => r.shadow_refused + r.shadow_banned,
  marked: (r) => r.marked,
  near: (r) => r.near,
};

/** Requests in the time range, by rule. */
export function RuleTable(props: { sum: Sum; span: string }) {
  const { sum } = props;
  const [order, setOrder] = useState<Order<Column>>({ by: "total", down: true });
  const [text, setText] = useState("");
  const has = wanted(text);
  const rules = sum.rules.filter((r) => has(`${r.domain} ${r.rule}`));
  // Rows with equal values must not swap places every second.
  const stable = sorted(rules, values.rule, false);
  const { shown, pager } = usePages(sorted(stable, values[order.by], order.down), 15, "rules");
  const some = (c: Column) => sum.rules.some((r) => Number(values[c](r)) > 0);
  const head = { order, onOrder: setOrder };
  return (
    <Panel
      title="By rule"
      about={`Last ${props.span}. A request counts for every rule that applies to it.`}
      side={
        sum.rules.length > 6 && (
          <input
            class="input filter"
            type="search"
            placeholder="Filter"
            aria-label="Filter rules"
            data-filter
            value={text}
            onInput={(e) => setText(e.currentTarget.value)}
          />
        )
      }
    >
      {shown.length === 0 ? (
        <Nothing
          title={sum.rules.length > 0 ? "No rules match the filter." : "No requests in this time range."}
        />
      ) : (
        <Scroll label="Requests by rule">
          <table class="table rule-table stacked">
            <thead>
              <tr>
                <SortHead column="rule" {...head}>
                  Rule
                </SortHead>
                <SortHead column="total" num {...head}>
                  Requests
                </SortHead>
                <SortHead column="allowed" num {...head}>
                  Allowed
                </SortHead>
                <SortHead column="refused" num {...head}>
                  Refused
                </SortHead>
                {some("delayed") && (
                  <SortHead column="delayed" num {...head}>
                    Delayed
                  </SortHead>
                )}
                {some("queued") && (
                  <SortHead column="queued" num {...head}>
                    Queued
                  </SortHead>
                )}
                {some("shadow") && (
                  <SortHead
                    column="shadow"
                    num
                    title="Would have been refused (shadow mode), or received a fake response (shadow ban)"
                    {...head}
                  >
                    Shadowed
                  </SortHead>
                )}
                {some("marked") && (
                  <SortHead
                    column="marked"
                    num
                    title="Passed and marked: near a limit with soft, or over one with on_limit: pass"
                    {...head}
                  >
                    Marked
                  </SortHead>
                )}
                <SortHead column="near" num title="Allowed with 20% of the limit or less remaining" {...head}>
                  Near limit
                </SortHead>
              </tr>
            </thead>
            <tbody>
              {shown.map((r) => (
                <tr key={r.id} data-rule={`${r.domain}/${r.rule}`}>
                  <th scope="row">
                    {r.rule === "(other)" ? (
                      <span title="More than 50 rules in a second: the first minutes after the page was opened have the rest in one row">
                        other rules
                      </span>
                    ) : (
                      <button
                        type="button"
                        class="link-button"
                        aria-pressed={view.rule.value === r.id}
                        title="Show only this rule in the chart"
                        onClick={() => {
                          view.rule.value = view.rule.value === r.id ? undefined : r.id;
                          view.by.value = "outcome";
                        }}
                      >
                        {r.rule}
                      </button>
                    )}{" "}
                    {r.rule !== "(other)" && <span class="muted small">{r.domain}</span>}
                    <Share rule={r} />
                  </th>
                  <td class="num" data-label="Requests">
                    {count(r.total)}
                    <span class="muted small block">
                      {perSecond(sum.seconds > 0 ? r.total / sum.seconds : 0)}/s
                    </span>
                  </td>
                  <Cell label="Allowed" n={r.allowed} of={r.total} />
                  <Cell label="Refused" n={r.refused} of={r.total} class="refused-text" />
                  {some("delayed") && <Cell label="Delayed" n={r.delayed} of={r.total} />}
                  {some("queued") && <Cell label="Queued" n={r.queued} of={r.total} />}
                  {some("shadow") && (
                    <Cell label="Shadowed" n={r.shadow_refused + r.shadow_banned} of={r.total} />
                  )}
                  {some("marked") && <Cell label="Marked" n={r.marked} of={r.total} />}
                  <Cell label="Near limit" n={r.near} of={r.allowed + r.delayed + r.marked} />
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
      {pager}
    </Panel>
  );
}

function Cell(props: { label: string; n: number; of: number; class?: string }) {
  return (
    <td class={`num ${props.n > 0 ? (props.class ?? "") : "muted"}`} data-label={props.label}>
      {count(props.n)}
      <span class="muted small block">{props.n > 0 ? share(props.n, props.of) : ""}</span>
    </td>
  );
}

/** The outcomes of a rule's requests as a bar. The cells of the row have the numbers. */
function Share(props: { rule: RuleSum }) {
  const r = props.rule;
  const parts = [
    ["allowed", r.allowed],
    ["marked", r.marked],
    ["delayed", r.delayed],
    ["queued", r.queued],
    ["shadowed", r.shadow_banned + r.shadow_refused],
    ["refused", r.refused],
  ] as const;
  let x = 0;
  return (
    <svg class="share-bar" aria-hidden="true" width="100%" height="4">
      {parts.map(([name, n]) => {
        const at = x;
        x += (100 * n) / r.total;
        return (
          n > 0 && (
            <rect
              key={name}
              class={`fill-${name}`}
              x={`${at}%`}
              width={`${(100 * n) / r.total}%`}
              height="4"
            />
          )
        );
      })}
    </svg>
  );
}
