import { expect, test } from "vitest";
import type { Second, Timeline } from "../data/types.ts";
import { askFrom, bins, ceiling, inWords, levelPath, merge, sum } from "./timeline.ts";

const second = (t: number, allowed: number, refused: number, low: number): Second => {
  return { t, allowed, refused, cost: allowed, low };
};

const timeline = (now: number, ...seconds: Second[]): Timeline => {
  return { domain: "api", rule: "login", key: ["a"], now, since: 1000, limit: 5, seconds };
};

test("seconds become slices, aligned to the clock", () => {
  const t = timeline(
    7199,
    second(7199, 1, 2, 0),
    second(7140, 3, 0, 4),
    second(7139, 1, 0, -1),
    second(3599, 9, 9, 9),
  );
  const all = bins(t, 3600);
  expect(all).toHaveLength(60);
  expect(all[0]!.from).toBe(3600);
  expect(all.at(-1)).toEqual({ from: 7140, allowed: 4, refused: 2, cost: 4, low: 0 });
  expect(all.at(-2)).toEqual({ from: 7080, allowed: 1, refused: 0, cost: 1, low: null });
  expect(sum(all)).toEqual({ from: 3600, allowed: 5, refused: 2, cost: 5, low: 0 });
  expect(bins(t, 300).at(-1)).toEqual({ from: 7195, allowed: 1, refused: 2, cost: 1, low: 0 });
});

test("new seconds replace those that may have grown, and old ones leave", () => {
  const first = merge(
    undefined,
    0,
    timeline(5000, second(1400, 1, 0, 3), second(4999, 1, 0, 3), second(5000, 1, 0, 2)),
  );
  expect(askFrom(undefined)).toBe(0);
  expect(askFrom(first)).toBe(4999);
  const next = merge(first, 4999, timeline(5001, second(4999, 2, 0, 2), second(5001, 1, 0, 1)));
  expect(next.seconds.map((s) => [s.t, s.allowed])).toEqual([
    [4999, 2],
    [5001, 1],
  ]);
  // After a restart of the server, or if the key was followed again, nothing is kept.
  const again = merge(next, 5000, { ...timeline(5002, second(5002, 1, 0, 1)), since: 5002 });
  expect(again.seconds).toHaveLength(1);
});

test("the level is a step for each slice with requests", () => {
  const all = bins(timeline(59, second(0, 1, 0, 4), second(2, 1, 0, 1)), 60).slice(0, 4);
  expect(
    levelPath(
      all,
      (i) => i * 10,
      (level) => 100 - level,
    ),
  ).toBe("M0 96H10L20 99H30");
  expect(levelPath([], Number, Number)).toBe("");
});

test("axes end at round numbers", () => {
  expect([0, 1, 2, 3, 7, 11, 49, 51, 1000].map(ceiling)).toEqual([1, 1, 2, 5, 10, 20, 50, 100, 1000]);
});

test("the picture in words", () => {
  const total = { from: 0, allowed: 1234, refused: 5, cost: 1, low: 0 };
  expect(inWords(total, 20, 60)).toBe(
    "Requests in 60 minutes: 1,234 allowed, 5 refused, at least 0 of 20 left.",
  );
  expect(inWords({ ...total, low: null }, 20, 5)).toBe("Requests in 5 minutes: 1,234 allowed, 5 refused.");
});
