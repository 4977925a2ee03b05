import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Icon } from "./Icon.tsx";

/** A word about what was done, and how to undo it if that can be. */
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

/** Says something, and takes what was said before away after a while. */
export function say(toast: Toast): void {
  last++;
  toasts.value = [...toasts.value.slice(-2), { ...toast, id: last }];
}

const drop = (id: number) => {
  toasts.value = toasts.value.filter((t) => t.id !== id);
};

/** Where toasts appear; the live region is there before they are. */
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
    // What can be undone, or went wrong, stays until it has been read.
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
