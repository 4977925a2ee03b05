import { expect, test } from "vitest";
import { History } from "../data/history.ts";
import type { Counts } from "../data/types.ts";
import { byOutcome, byRule, heights, inWords, rowsOf, sumOf } from "./chart.ts";
import { firstCommands } from "./Empty.tsx";
import { flatten } from "./Offenders.tsx";

const none: Counts = {
  allowed: 0,
  refused: 0,
  delayed: 0,
  queued: 0,
  shadow_banned: 0,
  shadow_refused: 0,
  marked: 0,
};

/** Seconds of two rules, with these counts. */
function history(...seconds: { login: Partial<Counts>; search?: Partial<Counts> }[]): History {
  const h = new History();
  seconds.forEach(({ login, search }, i) => {
    const rules = [{ ...none, ...login, domain: "api", rule: "login", near: 0 }];
    if (search) rules.push({ ...none, ...search, domain: "api", rule: "search", near: 0 });
    h.add({
      t: new Date(1_800_000_000_000 + i * 1000).toISOString(),
      rules,
      totals: { ...none, ...login, requests: 0 },
      degraded: 0,
      store: { circuit: "closed", keys: 0 },
    });
  });
  return h;
}

test("outcomes are stacked, and those that did not occur are left out", () => {
  const picture = byOutcome(
    history({ login: { allowed: 3, refused: 2 } }, { login: { allowed: 1, delayed: 4 } }),
    60_000,
  );
  expect(picture.lines.map((l) => [l.text, l.values])).toEqual([
    ["allowed", [3, 1]],
    ["delayed", [0, 4]],
    ["refused", [2, 0]],
  ]);
  expect(heights(picture)).toEqual([
    [3, 1],
    [3, 5],
    [5, 5],
  ]);
  expect(picture.lines.map(sumOf)).toEqual([4, 4, 2]);
});

test("each rule is a line, the busiest first", () => {
  const picture = byRule(
    history({ login: { allowed: 1 }, search: { allowed: 5, refused: 1 } }, { login: { allowed: 1 } }),
    60_000,
  );
  expect(picture.lines.map((l) => [l.text, l.values])).toEqual([
    ["search", [6, 0]],
    ["login", [1, 1]],
  ]);
  expect(heights(picture)).toEqual([
    [6, 0],
    [1, 1],
  ]);
});

test("the table has the lines of the chart, by outcome or by rule", () => {
  const h = history(
    { login: { allowed: 1, refused: 2 }, search: { allowed: 5 } },
    { login: { allowed: 1 } },
    { login: { allowed: 4 }, search: { refused: 7 } },
  );
  // The first second starts a slice of two, the third another.
  expect(rowsOf(byRule(h, 60_000), 2).map((row) => row.sums)).toEqual([
    [7, 4],
    [5, 4],
  ]);
  expect(rowsOf(byOutcome(h, 60_000), 2).map((row) => row.sums)).toEqual([
    [4, 0],
    [2, 2],
  ]);
});

test("a chart in words", () => {
  expect(inWords({ ...none, allowed: 1200, shadow_refused: 3 }, 300)).toBe(
    "Requests in 300 seconds: 1,200 allowed, 3 shadow refused.",
  );
  expect(inWords(none, 0)).toContain("none");
});

test("keys of all rules in one list, or of one", () => {
  const key = (name: string, n: number) => ({ key: [name], count: n, error: 0, share: 0.5 });
  const rules = [
    {
      domain: "api",
      rule: "login",
      by: "refused",
      error_bound: 0,
      total: 9,
      sampled: 16,
      keys: [key("a", 5), key("b", 1)],
    },
    {
      domain: "api",
      rule: "search",
      by: "refused",
      error_bound: 0,
      total: 3,
      sampled: 0,
      keys: [key("c", 3)],
    },
  ];
  expect(flatten(rules, "").map((o) => [o.rule, o.key, o.count, o.estimated])).toEqual([
    ["login", ["a"], 5, true],
    ["search", ["c"], 3, false],
    ["login", ["b"], 1, true],
  ]);
  expect(flatten(rules, '["api","search"]')).toHaveLength(1);
});

test("the example commands fit the doors and the rules", () => {
  const status = {
    doors: [
      { name: "api", address: "0.0.0.0:8080" },
      { name: "proxy", address: "127.0.0.1:8000" },
    ],
  };
  const rule = { domain: "shop", match: "path is /v1/**, method is GET", key: ["header:X-Api-Key"] };
  const commands = firstCommands(status as never, [rule as never], "gate.example");
  expect(commands.map((c) => c.text)).toEqual([
    "for i in 1 2 3 4 5 6; do curl -i http://127.0.0.1:8000/v1/try; done",
    `curl -i http://gate.example:8080/v1/check -d '{"domain":"shop","attributes":{"path":"/v1/try","client_ip":"198.51.100.7","header:X-Api-Key":"try"}}'`,
  ]);
});
