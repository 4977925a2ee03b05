import { signal } from "@preact/signals";

/** The current time, updated every second, for texts such as "5 min ago". */
export const now = signal(Date.now());

setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);
