import { useEffect, useState } from "preact/hooks";
import "../ui/ui.css";
import "./rules.css";
import { usePoll } from "../data/poll.ts";
import type { List as RequestList, Rule, Blocks as RuleBlocks, Status } from "../data/types.ts";
import { count, words } from "../ui/format.ts";
import { Nothing, Panel, Trouble } from "../ui/Panel.tsx";
import { Time } from "../ui/Time.tsx";
import { type Order, Scroll, SortHead, sorted, usePages } from "../ui/table.tsx";
import { Blocks } from "./Blocks.tsx";
import { Explain } from "./Explain.tsx";
import { type Column, filterRules, values } from "./filter.ts";

/** The rules page: the active rules, and how they decide a request. */
export function Rules() {
  const status = usePoll<Status>("/v1/status", 3000).state.value.data;
  const rules = usePoll<{ rules: Rule[]; lists?: RequestList[] }>("/v1/rules", 30_000);
  const blocks = usePoll<{ rules: RuleBlocks[] }>("/v1/blocks", 3000).state.value.data;
  const { data, problem } = rules.state.value;
  const loaded = status?.rules.loaded_at;
  // Load the list again when the rules were reloaded.
  useEffect(() => {
    if (loaded) void rules.again();
  }, [loaded]);
  return (
    <div class="page">
      <header class="intro">
        <h1>Rules</h1>
        <p class="muted">
          {status ? (
            <>
              {count(status.rules.rules)} active, loaded <Time at={status.rules.loaded_at} />. Loads:{" "}
              {count(status.rules.reloads_ok)} succeeded, {count(status.rules.reloads_failed)} failed.
            </>
          ) : (
            "The active rules, and how they decide a request."
          )}
        </p>
      </header>
      {status?.rules.last_error && (
        <p class="alarm delayed" role="status">
          <b>The rule files could not be loaded.</b> The rules below stay active.{" "}
          <span class="wrap-any mono small">{status.rules.last_error}</span>
        </p>
      )}
      <List rules={data?.rules} blocks={new Map(blocks?.rules.map((b) => [idOf(b), b]))}>
        {problem && <Trouble problem={problem} what="Rules" absent="This server does not list its rules." />}
      </List>
      <Lists lists={data?.lists ?? []} />
      <Explain rules={data?.rules ?? []} />
    </div>
  );
}

/** Tells rules and their tiers apart. */
const idOf = (r: { file: string; line: number; rate: string }) => `${r.file}:${r.line} ${r.rate}`;

function List(props: {
  rules: readonly Rule[] | undefined;
  blocks: ReadonlyMap<string, RuleBlocks>;
  children: preact.ComponentChildren;
}) {
  const [text, setText] = useState(() => new URLSearchParams(location.hash.slice(1)).get("filter") ?? "");
  const [order, setOrder] = useState<Order<Column>>({ by: "file", down: false });
  const all = props.rules ?? [];
  const found = filterRules(all, text);
  const { shown, pager } = usePages(sorted(found, values[order.by], order.down), 50, "rules");
  const domains = new Set(all.map((r) => r.domain)).size;
  const head = { order, onOrder: setOrder };
  const columns = [
    ["name", "Rule"],
    ["rate", "Limit"],
    ["match", "Applies to"],
    ["key", "Key"],
    ["algorithm", "Algorithm"],
    ["mode", "When exceeded"],
    ["file", "File"],
  ] as const;
  return (
    <Panel
      title="Active rules"
      class={props.rules ? undefined : "loading"}
      about={
        props.rules
          ? `${count(found.length)} of ${count(all.length)} rules in ${count(domains)} ${domains === 1 ? "domain" : "domains"}`
          : "Loading…"
      }
      side={
        <input
          class="input filter"
          type="search"
          placeholder='Filter: words, "a phrase"'
          aria-label="Filter rules"
          data-filter
          value={text}
          onInput={(e) => setText(e.currentTarget.value)}
        />
      }
    >
      {props.children}
      {props.rules && found.length === 0 && (
        <Nothing
          title={
            all.length > 0
              ? "No rules match the filter."
              : "No rules are configured, so every request is allowed."
          }
        >
          {all.length === 0 && (
            <>
              Put rule files into a folder, and set it in <code>headgate.yaml</code> or with{" "}
              <code>--rules</code>.
            </>
          )}
        </Nothing>
      )}
      {shown.length > 0 && (
        <Scroll label="Table of active rules">
          <table class="table rules-table stacked">
            <thead>
              <tr>
                {columns.map(([column, name]) => (
                  <SortHead key={column} column={column} {...head}>
                    {name}
                  </SortHead>
                ))}
              </tr>
            </thead>
            <tbody>
              {shown.map((r) => (
                <Row
                  key={`${r.file}:${r.line} ${r.domain} ${r.name}`}
                  rule={r}
                  blocks={props.blocks.get(idOf(r))}
                />
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
      {pager}
    </Panel>
  );
}

/** Names the first five files, and counts the others. */
function someOf(files: readonly string[]): string {
  const first = files.slice(0, 5).join(", ");
  return files.length > 5 ? `${first} and ${count(files.length - 5)} more` : first;
}

/** The allow and deny lists, if there are any. */
function Lists(props: { lists: readonly RequestList[] }) {
  if (props.lists.length === 0) return null;
  return (
    <Panel
      title="Lists"
      about="Allowed requests pass all rules. Denied ones are refused before rules count them."
    >
      <Scroll label="Table of lists">
        <table class="table rules-table lists-table">
          <thead>
            <tr>
              <th scope="col">List</th>
              <th scope="col" class="num">
                Entries
              </th>
              <th scope="col" class="num">
                Requests
              </th>
              <th scope="col">Mode</th>
              <th scope="col">From</th>
            </tr>
          </thead>
          <tbody>
            {props.lists.map((l) => (
              <tr key={`${l.domain} ${l.name} ${l.mode} ${l.status}`}>
                <th scope="row">
                  <b>{l.name}</b> <span class="muted small">{l.domain}</span>
                </th>
                <td class="num">{count(l.entries)}</td>
                <td class="num">{count(l.hits)}</td>
                <td class="nowrap">
                  {l.mode === "enforce" ? (
                    l.list === "deny" ? (
                      `answers ${l.status}`
                    ) : (
                      "passes"
                    )
                  ) : (
                    <span class="badge shadowed">{words(l.mode)} mode</span>
                  )}
                </td>
                <td>
                  <code class="small wrap-any">
                    {l.file}:{l.line}
                  </code>
                  {l.files && <span class="muted small block wrap-any">{someOf(l.files)}</span>}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </Panel>
  );
}

function Row(props: { rule: Rule; blocks: RuleBlocks | undefined }) {
  const { rule: r, blocks } = props;
  const observes = r.mode !== "enforce" || r.percent < 100;
  return (
    <tr>
      <th scope="row">
        <b>{r.name}</b> <span class="muted small">{r.domain}</span>
        {r.description && <span class="muted small block description">{r.description}</span>}
      </th>
      <td class="limit" data-label="Limit">
        <b class="num nowrap">{r.rate}</b>
        {!r.unlimited && r.burst !== r.limit && <span class="muted small block">burst {count(r.burst)}</span>}
        {blocks && <Blocks of={blocks} />}
      </td>
      <td class="wrap-any" data-label="Applies to">
        {r.match || <span class="muted">every request</span>}
      </td>
      <td data-label="Key">
        {r.key.length === 0 ? (
          <span class="muted">all requests</span>
        ) : (
          r.key.map((k) => (
            <code key={k} class="key">
              {k}
            </code>
          ))
        )}
      </td>
      <td class="nowrap" data-label="Algorithm">
        {words(r.algorithm)}
      </td>
      <td data-label="When exceeded">
        {observes ? (
          <span class="badge shadowed">
            {r.mode === "enforce" ? `enforced for ${r.percent}%` : `${words(r.mode)} mode`}
          </span>
        ) : (
          words(r.action)
        )}
        <span class="muted small block nowrap">on store error: {words(r.on_store_error)}</span>
        {r.on_repeat && <span class="muted small block description">on repeat: {r.on_repeat}</span>}
        {r.soft && <span class="muted small block description">marks {r.soft}</span>}
      </td>
      <td class="wrap-any" data-label="File">
        <code class="small">
          {r.file}:{r.line}
        </code>
      </td>
    </tr>
  );
}
