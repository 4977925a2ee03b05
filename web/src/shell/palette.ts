import { type Signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

/**
 * Reads design tokens as colours. A canvas needs colours, and a token is a
 * light-dark() pair until an element uses it, so a temporary element uses each.
 */
export function readTokens<N extends string>(names: readonly N[]): Record<N, string> {
  const probe = document.createElement("span");
  document.body.append(probe);
  const colours = Object.fromEntries(
    names.map((name) => {
      probe.style.color = `var(--${name})`;
      return [name, getComputedStyle(probe).color];
    }),
  );
  probe.remove();
  return colours as Record<N, string>;
}

/** The colours of the theme, updated when it changes. */
export function useTokens<N extends string>(names: readonly N[]): Signal<Record<N, string> | undefined> {
  const colours = useSignal<Record<N, string> | undefined>(undefined);
  useEffect(() => {
    const read = () => {
      colours.value = readTokens(names);
    };
    read();
    const system = matchMedia("(prefers-color-scheme: dark)");
    system.addEventListener("change", read);
    const root = new MutationObserver(read);
    root.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      system.removeEventListener("change", read);
      root.disconnect();
    };
  }, []);
  return colours;
}
