import { expect, test } from "vitest";
import type { Rule } from "../data/types.ts";
import { sorted } from "../ui/table.tsx";
import { attributesOf, suggest } from "./attributes.ts";
import { filterRules, values } from "./filter.ts";

const rule = (name: string, some: Partial<Rule> = {}): Rule => ({
  domain: "api",
  name,
  file: "rules/api.yaml",
  line: 3,
  limit: 5,
  period_ms: 60_000,
  rate: "5/minute",
  algorithm: "token_bucket",
  burst: 5,
  key: ["client_ip"],
  match: "path is /login",
  mode: "enforce",
  percent: 100,
  action: "reject",
  on_store_error: "allow",
  ...some,
});

const rules = [
  rule("login", { line: 100 }),
  rule("search", {
    line: 20,
    limit: 1,
    period_ms: 1000,
    rate: "1/second",
    key: ["header:X-Api-Key"],
    mode: "shadow",
  }),
  rule("all", { file: "rules/shop.yaml", limit: 100, period_ms: 3_600_000, rate: "100/hour" }),
];

test.each([
  ["", ["login", "search", "all"]],
  ["SEARCH", ["search"]],
  ["api.yaml client_ip", ["login"]],
  ["shadow x-api-key", ["search"]],
  ["api.yaml:20", ["search"]],
  ["nothing like this", []],
])("%s finds %j", (text, names) => expect(filterRules(rules, text).map((r) => r.name)).toEqual(names));

test("rates are sorted by how fast they are, lines by number", () => {
  expect(sorted(rules, values.rate, true).map((r) => r.name)).toEqual(["search", "login", "all"]);
  expect(sorted(rules, values.file, false).map((r) => r.name)).toEqual(["search", "login", "all"]);
});

test("only attributes with a name and a value are sent", () => {
  const pairs = [
    { name: " path ", value: "/login" },
    { name: "", value: "x" },
    { name: "host", value: "" },
  ];
  expect(attributesOf(pairs)).toEqual({ path: "/login" });
  expect(suggest(rules)).toContain("header:X-Api-Key");
});
