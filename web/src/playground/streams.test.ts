import { expect, test } from "vitest";
import { defaults } from "./settings.ts";
import { random, Stream, type Traffic } from "./streams.ts";

const second = 1_000_000;

function take(
  traffic: Partial<Traffic>,
  n: number,
  limit = { limit: 5, period: 10 * second },
  start = 0,
): number[] {
  const stream = new Stream({ ...defaults, ...traffic }, limit, start);
  return Array.from({ length: n }, () => stream.take()?.at ?? -1);
}

test("no traffic for kind none, or a rate of 0", () => {
  expect(take({ kind: "none" }, 2)).toEqual([-1, -1]);
  expect(take({ kind: "steady", rate: 0 }, 1)).toEqual([-1]);
  expect(take({ kind: "poisson", rate: 0 }, 1)).toEqual([-1]);
});

test("steady is steady, and does not drift", () => {
  expect(take({ kind: "steady", rate: 4 }, 4, undefined, 100)).toEqual([
    250_100, 500_100, 750_100, 1_000_100,
  ]);
  expect(take({ kind: "steady", rate: 3 }, 3000).at(-1)).toBe(1000 * second);
});

test("poisson has its rate, its scatter and its seed", () => {
  const n = 20_000;
  const times = take({ kind: "poisson", rate: 50, seed: 7 }, n);
  const gaps = times.map((at, i) => at - (times[i - 1] ?? 0));
  const mean = gaps.reduce((a, b) => a + b) / n;
  const deviation = Math.sqrt(gaps.reduce((a, b) => a + (b - mean) ** 2, 0) / n);
  expect(mean / second).toBeCloseTo(1 / 50, 3);
  expect(deviation / mean).toBeGreaterThan(0.97);
  expect(deviation / mean).toBeLessThan(1.03);
  expect(take({ kind: "poisson", rate: 50, seed: 7 }, n)).toEqual(times);
  expect(take({ kind: "poisson", rate: 50, seed: 8 }, n)).not.toEqual(times);
});

test("bursts come every so often, and are spread", () => {
  const traffic = { kind: "bursts", size: 3, every: 8 * second, spread: 3 * second } as const;
  expect(take(traffic, 6).map((at) => at / second)).toEqual([2, 3, 4, 10, 11, 12]);
  expect(take({ ...traffic, spread: 0 }, 3).map((at) => at / second)).toEqual([2, 2, 2]);
});

test("the attack on the edge: the limit before it, the limit after it, a pause", () => {
  const times = take({ kind: "boundary" }, 20, { limit: 5, period: 16 * second }, 3 * second).map(
    (at) => at / second,
  );
  expect(times.slice(0, 10)).toEqual([15, 15.2, 15.4, 15.6, 15.8, 16, 16.2, 16.4, 16.6, 16.8]);
  expect(times.slice(10)).toEqual(times.slice(0, 10).map((at) => at + 32));
});

test("times never go back", () => {
  for (const kind of ["steady", "poisson", "bursts", "boundary"] as const) {
    const times = take({ kind, spread: 60 * second, every: second }, 500);
    expect(
      times.every((at, i) => i === 0 || at >= times[i - 1]!),
      kind,
    ).toBe(true);
  }
});

test("random numbers are the same everywhere", () => {
  const next = random(1);
  expect([next(), next()].map((n) => n.toFixed(9))).toEqual(["0.627073941", "0.002735721"]);
});
