import { usePoll } from "../data/poll.ts";
import type { Change } from "../data/types.ts";
import { keyText } from "../ui/format.ts";
import { KeyView } from "../ui/KeyView.tsx";
import { Panel } from "../ui/Panel.tsx";
import { Time } from "../ui/Time.tsx";
import { Scroll, usePages } from "../ui/table.tsx";
import { ask } from "./actions.ts";
import { newest } from "./wouldban.ts";

/** The keys that on_repeat would ban if it was enforced, if there are any. */
export function WouldBan() {
  const poll = usePoll<{ audit: Change[] }>("/v1/audit", 10_000);
  const list = newest(poll.state.value.data?.audit ?? []);
  const { shown, pager } = usePages(list, 25, "keys that would be banned");
  if (list.length === 0) return null;
  return (
    <Panel
      title="Would be banned"
      about="By rules with on_repeat in shadow mode, on this server. Nobody is banned until the mode is enforce."
    >
      <Scroll label="Table of keys that would be banned">
        <table class="table">
          <thead>
            <tr>
              <th scope="col">Key</th>
              <th scope="col">Rule</th>
              <th scope="col">Last time</th>
              <th scope="col">Reason</th>
              <th scope="col">
                <span class="hidden">Peek</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {shown.map((c) => (
              <Row key={JSON.stringify([c.domain, c.rule, c.key, c.key_hash])} change={c} />
            ))}
          </tbody>
        </table>
      </Scroll>
      {pager}
    </Panel>
  );
}

function Row(props: { change: Change }) {
  const { domain, rule, key, key_hash, t, reason } = props.change;
  return (
    <tr>
      <td>
        <KeyView value={key} hash={key_hash} />
      </td>
      <td class="name">
        {rule} <span class="muted small">{domain}</span>
      </td>
      <td class="nowrap">
        <Time at={t} none="" />
      </td>
      <td class="wrap-any">{reason}</td>
      <td class="num">
        {key && (
          <button
            type="button"
            class="button small-button"
            aria-label={`Peek ${keyText(key)} (${rule})`}
            onClick={() => ask("peek", { domain, rule, key })}
          >
            Peek
          </button>
        )}
      </td>
    </tr>
  );
}
