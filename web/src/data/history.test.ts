import { expect, test } from "vitest";
import { History, slices } from "./history.ts";
import type { Tick } from "./types.ts";

const start = Date.parse("2026-01-02T03:04:00Z");

const counts = {
  allowed: 0,
  refused: 0,
  delayed: 0,
  queued: 0,
  shadow_banned: 0,
  shadow_refused: 0,
  marked: 0,
};

/** A second in which login allowed and refused this many. */
function tick(second: number, allowed: number, refused: number): Tick {
  return {
    t: new Date(start + second * 1000).toISOString(),
    rules:
      allowed + refused > 0
        ? [{ ...counts, domain: "api", rule: "login", allowed, refused, near: Math.min(allowed, 1) }]
        : [],
    totals: { ...counts, requests: allowed + refused, allowed, refused },
    degraded: 0,
    store: { circuit: "closed", keys: 1 },
  };
}

test("adds up a time range, in total and by rule", () => {
  const h = new History();
  for (let s = 0; s < 120; s++) h.add(tick(s, 3, 2));
  const minute = h.sum(60_000);
  expect([minute.seconds, minute.requests, minute.totals.allowed, minute.totals.refused]).toEqual([
    60, 300, 180, 120,
  ]);
  expect(minute.rules).toMatchObject([
    { domain: "api", rule: "login", total: 300, allowed: 180, refused: 120, near: 60 },
  ]);
  expect([minute.near, minute.passed]).toEqual([60, 180]);
  expect(h.sum(900_000).requests).toBe(600);
});

test("a new connection repeats the past, which is counted once", () => {
  const h = new History();
  expect(h.add(tick(1, 1, 0))).toBe(true);
  expect(h.add(tick(2, 1, 0))).toBe(true);
  for (const s of [1, 2]) expect(h.add(tick(s, 1, 0))).toBe(false);
  expect(h.add(tick(3, 1, 0))).toBe(true);
  expect(h.sum(60_000).requests).toBe(3);
});

test("keeps 15 minutes", () => {
  const h = new History();
  for (let s = 0; s < 2000; s++) h.add(tick(s, 1, 0));
  expect(h.length).toBeGreaterThanOrEqual(900);
  expect(h.length).toBeLessThanOrEqual(961);
  expect(h.sum(15 * 60_000).requests).toBe(900);
});

test("missing seconds are a gap in the series", () => {
  const h = new History();
  h.add(tick(0, 1, 0));
  h.add(tick(1, 2, 0));
  h.add(tick(60, 3, 0));
  const { times, counts } = h.series(300_000);
  expect(times.map((t) => t - start / 1000)).toEqual([0, 1, 2, 60]);
  expect(counts.map((c) => c?.allowed ?? null)).toEqual([1, 2, null, 3]);
});

test("the series of one rule has its own counts", () => {
  const h = new History();
  const both = tick(0, 5, 0);
  both.rules.push({ ...counts, domain: "api", rule: "search", allowed: 2, near: 0 });
  h.add(both);
  h.add(tick(1, 4, 0));
  const search = h.names.findIndex((n) => n.rule === "search");
  expect(h.series(60_000, search).counts.map((c) => c?.allowed)).toEqual([2, 0]);
});

test("adds up a thousand rules over 15 minutes", () => {
  const rules1000 = Array.from({ length: 1000 }, (_, i) => ({
    ...counts,
    domain: "api",
    rule: `r${i}`,
    allowed: 1,
    near: 0,
  }));
  const h = new History();
  for (let s = 0; s < 900; s++) h.add({ ...tick(s, 0, 0), rules: rules1000 });
  const { rules } = h.sum(15 * 60_000);
  expect(rules).toHaveLength(1000);
  expect(rules.every((r) => r.total === 900)).toBe(true);
});

test("slices are aligned to the clock, newest first, and complete", () => {
  const h = new History();
  for (let s = 3; s < 33; s++) h.add(tick(s, 1, 2));
  const table = slices(h.series(60_000), 15);
  expect(table.map((s) => [s.from - start / 1000, s.counts.allowed, s.counts.refused])).toEqual([
    [30, 3, 6],
    [15, 15, 30],
    [0, 12, 24],
  ]);
});
