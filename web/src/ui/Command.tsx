import { useState } from "preact/hooks";
import { Icon } from "./Icon.tsx";

/** A command to try in a terminal, with a copy button. */
export function Command(props: { text: string; label: string }) {
  const [copied, setCopied] = useState(false);
  return (
    <div class="command">
      <pre>
        <code>{props.text}</code>
      </pre>
      <button
        type="button"
        class="button small-button"
        aria-label={`Copy ${props.label}`}
        onClick={() => {
          void navigator.clipboard?.writeText(props.text).then(() => setCopied(true));
        }}
      >
        <Icon name="copy" />
        <span aria-live="polite">{copied ? "Copied" : "Copy"}</span>
      </button>
    </div>
  );
}
