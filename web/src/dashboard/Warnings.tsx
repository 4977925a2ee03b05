import { usePoll } from "../data/poll.ts";
import type { Warning } from "../data/types.ts";
import { KeyView } from "../ui/KeyView.tsx";
import { Time } from "../ui/Time.tsx";

/** How many warnings are shown. */
const most = 5;

/** Early warnings that have not ended. */
export function Warnings() {
  const { data } = usePoll<{ active: Warning[] }>("/v1/warnings", 2000).state.value;
  const list = data?.active ?? [];
  return (
    <>
      {list.slice(0, most).map((w) => (
        <p class="alarm delayed" key={w.id} data-warning={w.kind}>
          <b>{w.text}</b>{" "}
          {(w.key || w.key_hash) && (
            <>
              <KeyView value={w.key} hash={w.key_hash} />{" "}
            </>
          )}
          <span class="muted small">
            <Time at={w.since} />
          </span>
        </p>
      ))}
      {list.length > most && (
        <p class="alarm delayed">
          <b>{list.length - most} more warnings.</b> <code>headgate warnings ls</code> lists them.
        </p>
      )}
    </>
  );
}
