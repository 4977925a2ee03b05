import { signal } from "@preact/signals";

/** The time, a second fine, for what is said as "5 min ago". */
export const now = signal(Date.now());

setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);
