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
 * Shell is what surrounds every page: a link past the navigation, the
 * navigation, the theme, and the main landmark. alone leaves the navigation
 * out, for a page that has no admin door behind it.
 */
export function Shell(props: {
  page: PageName;
  alone?: boolean;
  /** The keys that this page has beside those of all. */
  keys?: readonly Shortcut[];
  children: ComponentChildren;
}) {
  return (
    <>
      {/* biome-ignore lint/a11y/useValidAnchor: it is a link, and must leave the address alone */}
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

// The address may carry a page's settings behind its #, so a link to #main
// must not take their place.
function focusMain(event: Event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}
