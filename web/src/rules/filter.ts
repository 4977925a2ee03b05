import type { Rule } from "../data/types.ts";
import { wanted } from "../ui/wanted.ts";

/** A sortable column of the list of rules. */
export type Column = "name" | "file" | "rate" | "match" | "key" | "algorithm" | "mode";

/** The sort value of each column. Rates compare as requests per second. */
export const values: Record<Column, (r: Rule) => string | number> = {
  name: (r) => `${r.domain} ${r.name}`,
  file: (r) => `${r.file}:${String(r.line).padStart(9, "0")}`,
  rate: (r) => (r.unlimited ? Number.MAX_VALUE : r.limit / Math.max(1, r.period_ms)),
  match: (r) => r.match,
  key: (r) => r.key.join(" "),
  algorithm: (r) => r.algorithm,
  mode: (r) => `${r.mode} ${r.action}`,
};

/** Returns the rules that contain all words and "phrases", in any field. */
export function filterRules(rules: readonly Rule[], text: string): Rule[] {
  const has = wanted(text);
  return rules.filter((r) =>
    has(
      [
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
      ].join(" "),
    ),
  );
}
