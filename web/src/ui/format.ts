import type { Key } from "../data/types.ts";

const whole = new Intl.NumberFormat("en-US");
const tenths = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });
const hundredths = new Intl.NumberFormat("en-US", { maximumFractionDigits: 2 });

/** Writes a number whole: 1,234,567. */
export const count = (n: number): string => whole.format(n);

/** Writes how many a second: two decimals below 1, one below 100. */
export function perSecond(n: number): string {
  if (n >= 100) return whole.format(Math.round(n));
  return (n >= 1 ? tenths : hundredths).format(n);
}

/** Writes a share: 0%, <0.1%, 12.3%, 100%. Nothing of nothing is a dash. */
export function share(part: number, all: number): string {
  if (all <= 0) return "–";
  const percent = (100 * part) / all;
  if (part > 0 && percent < 0.1) return "<0.1%";
  // What is not all of it must not look so.
  if (part < all && percent > 99.9) return ">99.9%";
  return `${tenths.format(percent)}%`;
}

/** Writes a size: 384 B, 1.5 KiB, 20 MiB. */
export function bytes(n: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) {
    n /= 1024;
    i++;
  }
  return `${tenths.format(n)} ${units[i]}`;
}

const steps: readonly (readonly [number, string])[] = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "min"],
];

/** Writes milliseconds: 250 ms, 11.3 s, 2 min 5 s, 3 h 20 min, 2 d 4 h. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${tenths.format(Math.floor(ms / 100) / 10)} s`;
  for (const [i, [step, unit]] of steps.entries()) {
    if (ms < step) continue;
    const [below, small] = steps[i + 1] ?? [1000, "s"];
    const rest = Math.floor((ms % step) / below);
    return `${Math.floor(ms / step)} ${unit}${rest > 0 ? ` ${rest} ${small}` : ""}`;
  }
  return "";
}

/** Writes how far a time is from another: "in 5 min", "12 s ago", "now". */
export function relative(t: number, now: number): string {
  const away = Math.abs(t - now);
  if (away < 1000) return "now";
  const text = duration(Math.floor(away / 1000) * 1000);
  return t > now ? `in ${text}` : `${text} ago`;
}

/** Writes a time to the second, where the reader is, with the zone. */
export function absolute(t: number): string {
  return new Date(t).toLocaleString("en-GB", {
    dateStyle: "medium",
    timeStyle: "long",
  });
}

/** Writes a time of day: 14:03:59. */
export function clock(t: number): string {
  return new Date(t).toLocaleTimeString("en-GB");
}

/** Writes a key for people who listen, and for titles. */
export function keyText(key: Key): string {
  return key.length === 0 ? "everyone together" : key.map((part) => part ?? "(none)").join(", ");
}

/** Writes a name of the protocol for people: shadow_refused, shadow refused. */
export const words = (name: string): string => name.replaceAll("_", " ");

const goDuration = /^(?:\d+(?:\.\d+)?(?:ms|s|m|h))+$/;
const inDays = /^(\d+(?:\.\d+)?)\s*d(?:ays?)?$/;

/** Makes what people type a duration as Go reads it, or nothing if it is none. */
export function goSpan(text: string): string | undefined {
  const typed = text.trim().toLowerCase();
  const days = inDays.exec(typed);
  if (days) return Number(days[1]) > 0 ? `${Number(days[1]) * 24}h` : undefined;
  const compact = typed.replaceAll(/\s+/g, "").replaceAll(/min(?:utes?)?/g, "m");
  return goDuration.test(compact) && /[1-9]/.test(compact) ? compact : undefined;
}
