import type { Rule } from "../data/types.ts";

/** By what the list of rules can be sorted. */
export type Column = "name" | "file" | "rate" | "match" | "key" | "algorithm" | "mode";

/** What each column is sorted by. Rates compare by how many a second they are. */
export const values: Record<Column, (r: Rule) => string | number> = {
  name: (r) => `${r.domain} ${r.name}`,
  file: (r) => `${r.file}:${String(r.line).padStart(9, "0")}`,
  rate: (r) => (r.unlimited ? Number.MAX_VALUE : r.limit / Math.max(1, r.period_ms)),
  match: (r) => r.match,
  key: (r) => r.key.join(" "),
  algorithm: (r) => r.algorithm,
  mode: (r) => `${r.mode} ${r.action}`,
};

/** Keeps the rules that have all the words, in anything that is told of them. */
export function filterRules(rules: readonly Rule[], text: string): Rule[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [...rules];
  return rules.filter((r) => {
    const said = [
      r.domain,
      r.name,
      `${r.file}:${r.line}`,
      r.rate,
      r.algorithm,
      r.match,
      ...r.key,
      r.mode,
      r.action,
      r.on_store_error,
      r.description,
    ]
      .join(" ")
      .toLowerCase();
    return words.every((word) => said.includes(word));
  });
}
