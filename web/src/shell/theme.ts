import { signal } from "@preact/signals";

/** A theme; "system" follows the operating system. */
export type Theme = "system" | "light" | "dark";

/** All themes, in the order the switch shows them. */
export const themes: readonly Theme[] = ["system", "light", "dark"];

// public/theme.js reads the same key before the first paint.
const key = "headgate-theme";

function stored(): Theme {
  try {
    const value = localStorage.getItem(key);
    return value === "light" || value === "dark" ? value : "system";
  } catch {
    return "system";
  }
}

/** The current theme. Change it with {@link setTheme}. */
export const theme = signal<Theme>(stored());

/** Switches the theme and stores the choice, if the browser allows it. */
export function setTheme(next: Theme): void {
  theme.value = next;
  const root = document.documentElement;
  if (next === "system") delete root.dataset.theme;
  else root.dataset.theme = next;
  try {
    if (next === "system") localStorage.removeItem(key);
    else localStorage.setItem(key, next);
  } catch {
    // Storage is off: the choice lasts until the page is closed.
  }
}
