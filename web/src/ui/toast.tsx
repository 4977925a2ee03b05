import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Icon } from "./Icon.tsx";

/** A short message about an action, with an undo function if it can be undone. */
export interface Toast {
  text: string;
  failed?: boolean;
  undo?: () => Promise<void>;
}

interface Shown extends Toast {
  id: number;
}

const toasts = signal<readonly Shown[]>([]);
let last = 0;

/** Shows a toast, next to at most two earlier ones. */
export function say(toast: Toast): void {
  last++;
  toasts.value = [...toasts.value.slice(-2), { ...toast, id: last }];
}

const drop = (id: number) => {
  toasts.value = toasts.value.filter((t) => t.id !== id);
};

/** The place where toasts appear. The live region exists before the first one. */
export function Toasts() {
  return (
    <div class="toasts">
      <div role="status">
        {toasts.value.map((toast) => (
          <One key={toast.id} toast={toast} />
        ))}
      </div>
    </div>
  );
}

function One(props: { toast: Shown }) {
  const { id, text, failed, undo } = props.toast;
  useEffect(() => {
    // A failure, or a toast with Undo, stays until it is dismissed.
    if (failed || undo) return;
    const timer = setTimeout(() => drop(id), 8000);
    return () => clearTimeout(timer);
  }, [id]);
  return (
    <div class={`toast ${failed ? "failed" : ""}`}>
      <span>{text}</span>
      {undo && (
        <button
          type="button"
          class="button small-button"
          onClick={() => {
            drop(id);
            void undo();
          }}
        >
          Undo
        </button>
      )}
      <button type="button" class="button quiet small-button" aria-label="Dismiss" onClick={() => drop(id)}>
        <Icon name="close" />
      </button>
    </div>
  );
}
