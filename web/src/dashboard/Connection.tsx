import type { Stream } from "../data/stream.ts";
import { now } from "../ui/now.ts";

const texts = { off: "Paused", connecting: "Connecting", live: "Live", lost: "No connection" } as const;

/** The state of the connection, and a button to retry at once. */
export function ConnectionState(props: { stream: Stream; paused?: boolean }) {
  const { stream } = props;
  const state = stream.state.value;
  const seconds = Math.max(0, Math.ceil((stream.retryAt.value - now.value) / 1000));
  return (
    <span class={`connection ${props.paused && state === "live" ? "off" : state}`} data-connection={state}>
      <span role="status">
        <i class="dot" aria-hidden="true" />
        {props.paused && state === "live" ? "Paused" : texts[state]}
      </span>
      {state === "lost" && (
        <>
          {/* Outside the live region: a screen reader must not read a countdown. */}
          <span class="num small">{seconds > 0 ? `retrying in ${seconds} s` : "retrying…"}</span>
          <button type="button" class="button small-button" onClick={() => stream.reopen()}>
            Retry now
          </button>
        </>
      )}
    </span>
  );
}
