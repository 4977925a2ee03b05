import type { ComponentChildren } from "preact";
import "../styles/base.css";
import "../styles/controls.css";
import "./shell.css";
import { Toasts } from "../ui/toast.tsx";
import { Help } from "./Help.tsx";
import { type PageName, pages } from "./pages.ts";
import { Segments } from "./Segments.tsx";
import type { Shortcut } from "./shortcuts.ts";
import { setTheme, theme, themes } from "./theme.ts";

/**
 * Shell surrounds every page: skip link, navigation, theme switch and the main
 * landmark. alone leaves the navigation out, for a page without an admin door.
 */
export function Shell(props: {
  page: PageName;
  alone?: boolean;
  /** Shortcuts of this page in addition to those of all pages. */
  keys?: readonly Shortcut[];
  children: ComponentChildren;
}) {
  return (
    <>
      {/* biome-ignore lint/a11y/useValidAnchor: it is a link, but must not change the address */}
      <a class="skip" href="#main" onClick={focusMain}>
        Skip to content
      </a>
      <header class="top">
        <div class="top-inner">
          {props.alone ? (
            <span class="brand">
              <Brand />
            </span>
          ) : (
            <a class="brand" href="./">
              <Brand />
            </a>
          )}
          <nav class="nav" aria-label="Pages">
            {!props.alone &&
              pages.map((page) => (
                <a
                  key={page.name}
                  href={page.href}
                  aria-current={page.name === props.page ? "page" : undefined}
                >
                  {page.name}
                </a>
              ))}
          </nav>
          <Segments
            legend="Theme"
            value={theme.value}
            options={themes.map((value) => ({ value, text: value[0]!.toUpperCase() + value.slice(1) }))}
            onChange={setTheme}
          />
          {!props.alone && <Help keys={props.keys} />}
        </div>
      </header>
      <main class="main" id="main" tabIndex={-1}>
        {props.children}
      </main>
      {!props.alone && <Toasts />}
    </>
  );
}

function Brand() {
  return (
    <>
      <img src="./favicon.svg" alt="" />
      Headgate
    </>
  );
}

// The hash of the address may hold the settings of a page, so a link to #main must
// not replace it.
function focusMain(event: Event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}
