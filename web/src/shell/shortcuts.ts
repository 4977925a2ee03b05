import { signal } from "@preact/signals";

/** One key, or two pressed in sequence, and their action. */
export interface Shortcut {
  keys: string;
  what: string;
  act: () => void;
}

const key = "headgate-shortcuts";

function stored(): boolean {
  try {
    return localStorage.getItem(key) !== "off";
  } catch {
    return true;
  }
}

/**
 * Whether shortcuts are on. WCAG 2.1.4 requires a way to turn single-key
 * shortcuts off, for speech input and unsteady hands.
 */
export const shortcutsOn = signal(stored());

/** Turns shortcuts on or off, and remembers it. */
export function setShortcuts(on: boolean): void {
  shortcutsOn.value = on;
  try {
    if (on) localStorage.removeItem(key);
    else localStorage.setItem(key, "off");
  } catch {
    // Storage is off: the choice lasts until the page is closed.
  }
}

/** Reports whether a key press is text input or a key combination. */
function isTyped(event: KeyboardEvent): boolean {
  const { target } = event;
  return (
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    (target instanceof Element &&
      target.closest("input:not([type=radio], [type=checkbox]), select, textarea") !== null)
  );
}

/** The longest time between the two keys of a sequence, in milliseconds. */
const patience = 1200;

/** Listens for shortcuts. Returns a function that stops. */
export function listen(shortcuts: () => readonly Shortcut[], clock = () => Date.now()): () => void {
  let first = "";
  let at = 0;
  const press = (event: KeyboardEvent) => {
    if (isTyped(event) || (!shortcutsOn.value && event.key !== "?")) return;
    // An open dialog handles its own keys.
    if (document.querySelector("dialog[open]")) return;
    const before = clock() - at < patience ? first : "";
    first = "";
    const list = shortcuts();
    const done = list.find((s) => s.keys === (before ? `${before} ${event.key}` : event.key));
    if (done) {
      event.preventDefault();
      // The second key of a sequence must not trigger a shortcut of the page.
      event.stopImmediatePropagation();
      done.act();
      return;
    }
    if (list.some((s) => s.keys.startsWith(`${event.key} `))) {
      first = event.key;
      at = clock();
    }
  };
  document.addEventListener("keydown", press, true);
  return () => document.removeEventListener("keydown", press, true);
}
