import { expect, test } from "vitest";
import type { Change } from "../data/types.ts";
import { newest } from "./wouldban.ts";

function change(action: string, rule: string, key: string, reason: string): Change {
  return { t: "2026-11-21T11:00:00Z", action, by: "on_repeat", domain: "api", rule, key: [key], reason };
}

test("each key that would be banned is listed once, with its newest ban", () => {
  const changes = [
    change("would_ban", "search", "a", "ban 2"),
    change("ban", "search", "b", "ban 1"),
    change("would_ban", "search", "a", "ban 1"),
    change("would_ban", "login", "a", "ban 1"),
    change("reset", "login", "c", ""),
  ];
  expect(newest(changes).map((c) => `${c.rule} ${c.key} ${c.reason}`)).toEqual([
    "search a ban 2",
    "login a ban 1",
  ]);
  expect(newest([])).toEqual([]);
});
