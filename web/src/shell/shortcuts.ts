import { signal } from "@preact/signals";

/** One or two keys, pressed one after the other, and what they do. */
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
 * Whether single keys do something. Who speaks to the machine, or whose hands
 * are not steady, wants them off (WCAG 2.1.4).
 */
export const shortcutsOn = signal(stored());

/** Turns shortcuts on or off, and remembers it. */
export function setShortcuts(on: boolean): void {
  shortcutsOn.value = on;
  try {
    if (on) localStorage.removeItem(key);
    else localStorage.setItem(key, "off");
  } catch {
    // It holds for this page, then.
  }
}

/** Keys are text where text is typed. */
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

/** How long the first of two keys is remembered, in milliseconds. */
const patience = 1200;

/** Listens for shortcuts, and returns how to stop. */
export function listen(shortcuts: () => readonly Shortcut[], clock = () => Date.now()): () => void {
  let first = "";
  let at = 0;
  const press = (event: KeyboardEvent) => {
    if (isTyped(event) || (!shortcutsOn.value && event.key !== "?")) return;
    // A dialog has keys of its own.
    if (document.querySelector("dialog[open]")) return;
    const before = clock() - at < patience ? first : "";
    first = "";
    const list = shortcuts();
    const done = list.find((s) => s.keys === (before ? `${before} ${event.key}` : event.key));
    if (done) {
      event.preventDefault();
      // The page's own keys are not meant by the second of two.
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
