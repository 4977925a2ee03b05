import type { Stream } from "../data/stream.ts";
import { now } from "../ui/now.ts";

const texts = { off: "Paused", connecting: "Connecting", live: "Live", lost: "No connection" } as const;

/** How the connection is, and a way to hurry it. */
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
          {/* Not in the live region: nobody wants to hear a countdown. */}
          <span class="num small">{seconds > 0 ? `trying again in ${seconds} s` : "trying…"}</span>
          <button type="button" class="button small-button" onClick={() => stream.reopen()}>
            Try now
          </button>
        </>
      )}
    </span>
  );
}
