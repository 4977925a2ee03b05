import type { Key } from "../data/types.ts";

const whole = new Intl.NumberFormat("en-US");
const tenths = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });
const hundredths = new Intl.NumberFormat("en-US", { maximumFractionDigits: 2 });

/** Formats a whole number: 1,234,567. */
export const count = (n: number): string => whole.format(n);

/** Formats a rate per second: two decimals below 1, one below 100. */
export function perSecond(n: number): string {
  if (n >= 100) return whole.format(Math.round(n));
  return (n >= 1 ? tenths : hundredths).format(n);
}

/** Formats a share: 0%, <0.1%, 12.3%, 100%; a dash if all is 0. */
export function share(part: number, all: number): string {
  if (all <= 0) return "–";
  const percent = (100 * part) / all;
  if (part > 0 && percent < 0.1) return "<0.1%";
  // Less than all must not be rounded to 100%.
  if (part < all && percent > 99.9) return ">99.9%";
  return `${tenths.format(percent)}%`;
}

/** Formats a size: 384 B, 1.5 KiB, 20 MiB. */
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

/** Formats milliseconds: 250 ms, 11.3 s, 2 min 5 s, 3 h 20 min, 2 d 4 h. */
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

/** From this many milliseconds on, a date says more than a number of days. */
const far = 30 * 86_400_000;

/** Formats a time relative to now: "in 5 min", "12 s ago", "now"; far away as a date. */
export function relative(t: number, now: number): string {
  const away = Math.abs(t - now);
  if (away >= far) return new Date(t).toLocaleDateString("en-GB", { dateStyle: "medium" });
  if (away < 1000) return "now";
  const text = duration(Math.floor(away / 1000) * 1000);
  return t > now ? `in ${text}` : `${text} ago`;
}

/** Formats a time to the second in the local time zone, with the zone. */
export function absolute(t: number): string {
  return new Date(t).toLocaleString("en-GB", {
    dateStyle: "medium",
    timeStyle: "long",
  });
}

/** Names the local time zone at t, as in GMT+2 or UTC. */
export function zone(t: number): string {
  const parts = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" }).formatToParts(t);
  return parts.find((part) => part.type === "timeZoneName")?.value ?? "";
}

/** Formats a time of day: 14:03:59. */
export function clock(t: number): string {
  return new Date(t).toLocaleTimeString("en-GB");
}

/** Characters that are not seen, or change how others are: control, format, separators. */
const unseen =
  /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]|\p{Variation_Selector}|\u034f|\u115f|\u1160|\u17b4|\u17b5|\u3164|\uffa0/u;
const asEscape = (char: string): string => {
  const code = char.codePointAt(0)!;
  const hex = (digits: number) => code.toString(16).padStart(digits, "0");
  return code < 0x80 ? `\\x${hex(2)}` : code < 0x10000 ? `\\u${hex(4)}` : `\\U${hex(8)}`;
};
const escapes = /\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})/g;

/**
 * Shows what is not seen in text from clients, as \u202e: otherwise one key can look like
 * another. The commands write and read the same (internal/base/clip). A backslash of the
 * text that would look like such an escape is \x5c.
 */
export function escaped(text: string): string {
  const plain = text.replaceAll(escapes, (found) => {
    const code = Number.parseInt(found.slice(2), 16);
    const known = code <= 0x10ffff && (code === 0x5c || unseen.test(String.fromCodePoint(code)));
    return known ? `\\x5c${found.slice(1)}` : found;
  });
  return plain.replaceAll(new RegExp(unseen.source, "gu"), asEscape);
}

/** Reads what {@link escaped} has written, in text that somebody typed. */
export function unescaped(text: string): string {
  return text.replaceAll(escapes, (found) => {
    const code = Number.parseInt(found.slice(2), 16);
    if (code > 0x10ffff) return found;
    const char = String.fromCodePoint(code);
    return code === 0x5c || unseen.test(char) ? char : found;
  });
}

/** Formats a key as plain text, for labels and titles. */
export function keyText(key: Key): string {
  return key.length === 0
    ? "all requests"
    : key.map((part) => (part === null ? "(none)" : escaped(part))).join(", ");
}

/** Turns a name of the API into words: shadow_refused becomes shadow refused. */
export const words = (name: string): string => name.replaceAll("_", " ");

const goDuration = /^(?:\d+(?:\.\d+)?(?:ms|s|m|h))+$/;
const inDays = /^(\d+(?:\.\d+)?)\s*d(?:ays?)?$/;

/** Converts typed text to a Go duration; undefined if it is not a duration. */
export function goSpan(text: string): string | undefined {
  const typed = text.trim().toLowerCase();
  const days = inDays.exec(typed);
  if (days) return Number(days[1]) > 0 ? `${Number(days[1]) * 24}h` : undefined;
  const compact = typed.replaceAll(/\s+/g, "").replaceAll(/min(?:utes?)?/g, "m");
  return goDuration.test(compact) && /[1-9]/.test(compact) ? compact : undefined;
}
