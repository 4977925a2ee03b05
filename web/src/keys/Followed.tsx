import { useEffect } from "preact/hooks";
import { usePoll } from "../data/poll.ts";
import type { FollowedKeys } from "../data/types.ts";
import { keyText } from "../ui/format.ts";
import { KeyView } from "../ui/KeyView.tsx";
import { Panel } from "../ui/Panel.tsx";
import { Time } from "../ui/Time.tsx";
import { ask, done } from "./actions.ts";

/** The keys that are followed, if there are any. */
export function Followed() {
  const poll = usePoll<FollowedKeys>("/v1/timeline", 10_000);
  const { data } = poll.state.value;
  const change = done.value;
  useEffect(() => {
    if (change > 0) void poll.again();
  }, [change]);
  if (!data || data.keys.length === 0) return null;
  return (
    <Panel title="Followed keys" about={`Up to ${data.most} at a time, on this server.`}>
      <ul class="followed">
        {data.keys.map((f) => {
          const { domain, rule, key } = f;
          return (
            <li key={JSON.stringify([domain, rule, key, f.key_hash])}>
              <span>
                <KeyView value={key} hash={f.key_hash} />{" "}
                <span class="muted small">
                  {rule}, since <Time at={f.since} />
                </span>
              </span>
              {key && (
                <button
                  type="button"
                  class="button small-button"
                  aria-label={`Show the last hour of ${keyText(key)} (${rule})`}
                  onClick={() => ask("timeline", { domain, rule, key })}
                >
                  Last hour
                </button>
              )}
            </li>
          );
        })}
      </ul>
    </Panel>
  );
}
