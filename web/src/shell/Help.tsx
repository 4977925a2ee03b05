import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Dialog } from "../ui/Dialog.tsx";
import { pages } from "./pages.ts";
import { listen, type Shortcut, setShortcuts, shortcutsOn } from "./shortcuts.ts";

const open = signal(false);

/** Focuses the filter field of the page, if it has one. */
function focusFilter(): void {
  document.querySelector<HTMLElement>("[data-filter]")?.focus();
}

/** The shortcuts of every page. */
const common: readonly Shortcut[] = [
  ...pages.map((page) => ({
    keys: `g ${page.key}`,
    what: page.name,
    act: () => {
      location.href = page.href;
    },
  })),
  { keys: "/", what: "Focus the filter", act: focusFilter },
  {
    keys: "?",
    what: "Show this help",
    act: () => {
      open.value = true;
    },
  },
];

/** The help button, its dialog, and the listener for shortcuts. */
export function Help(props: { keys?: readonly Shortcut[] | undefined }) {
  const own = props.keys ?? [];
  useEffect(() => listen(() => [...own, ...common]), [own]);
  return (
    <>
      <button
        type="button"
        class="button quiet small-button help-button"
        aria-label="Keyboard shortcuts"
        aria-keyshortcuts="?"
        title="Keyboard shortcuts (?)"
        onClick={() => {
          open.value = true;
        }}
      >
        <kbd>?</kbd>
      </button>
      {open.value && (
        <Dialog
          title="Keyboard shortcuts"
          onClose={() => {
            open.value = false;
          }}
        >
          <div class="help">
            {own.length > 0 && <Keys title="On this page" list={own} />}
            <Keys title="Go to" list={common.filter((s) => s.keys.startsWith("g "))} />
            <Keys title="Everywhere" list={common.filter((s) => !s.keys.startsWith("g "))} />
          </div>
          <label class="check">
            <input
              type="checkbox"
              checked={shortcutsOn.value}
              onChange={(event) => setShortcuts(event.currentTarget.checked)}
            />
            <span>Enable keyboard shortcuts</span>
          </label>
        </Dialog>
      )}
    </>
  );
}

function Keys(props: { title: string; list: readonly Shortcut[] }) {
  return (
    <section>
      <h3>{props.title}</h3>
      <dl class="keys">
        {props.list.map((shortcut) => (
          <div key={shortcut.keys}>
            <dt>
              {shortcut.keys.split(" ").map((k) => (
                <kbd key={k}>{k}</kbd>
              ))}
            </dt>
            <dd>{shortcut.what}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
