import type { Rule } from "../data/types.ts";

/** An attribute of a request, as it is typed. */
export interface Pair {
  name: string;
  value: string;
}

/** Returns the attributes to send: those with a name and a value. */
export function attributesOf(pairs: readonly Pair[]): Record<string, string> {
  const out: Record<string, string> = {};
  for (const { name, value } of pairs) {
    if (name.trim() && value !== "") out[name.trim()] = value;
  }
  return out;
}

/** Returns attribute names to suggest: common ones, then the keys of the rules. */
export function suggest(rules: readonly Rule[]): string[] {
  return [...new Set(["method", "path", "client_ip", "host", ...rules.flatMap((r) => r.key)])];
}
