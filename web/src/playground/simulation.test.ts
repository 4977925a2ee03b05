// @vitest-environment node
import { beforeEach, expect, test } from "vitest";
import { algorithms } from "./algorithms.ts";
import { firstFrom } from "./draw.ts";
import { sayClock, sayTime } from "./player.ts";
import { defaults, type Settings } from "./settings.ts";
import { epoch, Simulation } from "./simulation.ts";
import { core } from "./testing.ts";
import type { Core } from "./wasm.ts";

const second = 1_000_000;
let go: Core;
beforeEach(async () => {
  go = await core();
});

const simulate = (some: Partial<Settings>) => new Simulation(go, { ...defaults, ...some });
const counts = (sim: Simulation) =>
  Object.fromEntries(
    algorithms.map((name) => {
      const look = sim.look(name);
      return [name, [look.allowed, look.refused]];
    }),
  );

test("20 requests at once with a limit of 10", () => {
  const sim = simulate({ kind: "none" });
  sim.hit(20);
  expect(counts(sim)).toEqual(Object.fromEntries(algorithms.map((name) => [name, [10, 10]])));
  expect(sim.look("token_bucket").retryAfter).toBe(second);
  expect(sim.look("fixed_window").retryAfter).toBe(10 * second);
});

test("a window boundary attack doubles the limit of a fixed window only", () => {
  const sim = simulate({ kind: "boundary", limit: 5 });
  sim.advance(20 * second);
  expect(sim.requests).toBe(10);
  expect(sim.look("fixed_window")).toMatchObject({ allowed: 10, tooMany: 5, peak: 10 });
  expect(sim.look("sliding_log")).toMatchObject({
    allowed: 5,
    refused: 5,
    tooMany: 0,
    tooStrict: 0,
    peak: 5,
  });
});

test("results do not depend on how often the charts are drawn", () => {
  const once = simulate({ kind: "poisson", rate: 20 });
  once.advance(60 * second);
  const expected = counts(once);
  expect(once.requests).toBeGreaterThan(1000);
  const often = new Simulation(go, once.settings);
  often.reset();
  for (let i = 0; i < 3600; i++) often.advance(second / 60);
  expect(often.now - epoch).toBeGreaterThanOrEqual(60 * second);
  often.advance(0);
  // 3600 times a rounded 16,667 µs is a little more than a minute.
  expect(often.requests - once.requests).toBeLessThan(3);
  for (const name of algorithms)
    expect(Math.abs(counts(often)[name]![0]! - expected[name]![0]!)).toBeLessThan(3);
});

test("a changed limit keeps the usage", () => {
  const sim = simulate({ kind: "none" });
  sim.hit(6);
  sim.change({ ...sim.settings, limit: 8 });
  for (const name of algorithms) expect(sim.look(name).remaining, name).toBe(2);
  sim.change({ ...sim.settings, limit: 20 });
  for (const name of algorithms) expect(sim.look(name).remaining, name).toBe(14);
});

test("traffic continues, unless its settings change", () => {
  const sim = simulate({ kind: "steady", rate: 1 });
  sim.advance(1.5 * second);
  sim.change({ ...sim.settings, limit: 3, shown: ["sliding_log"], speed: 5 });
  expect(sim.step().marks[0]!.at).toBe(epoch + 2 * second);
  sim.change({ ...sim.settings, rate: 2 });
  expect(sim.step().marks[0]!.at).toBe(epoch + 2.5 * second);
});

test("a step goes to the next request, or one period ahead", () => {
  const sim = simulate({ kind: "bursts", size: 2, every: 100 * second, spread: 0 });
  expect(sim.step().marks).toHaveLength(0);
  expect(sim.now).toBe(epoch + 10 * second);
  sim.step();
  expect(sim.step().marks).toHaveLength(2);
  expect(sim.now).toBe(epoch + 25 * second);
});

test("too many requests slow the clock down, and none is lost", () => {
  const sim = simulate({ kind: "steady", rate: 1000 });
  const first = sim.advance(10 * second);
  expect(first).toMatchObject({ late: true });
  expect(first.marks).toHaveLength(4000);
  expect(sim.now).toBe(epoch + 4 * second);
  expect(sim.advance(second)).toMatchObject({ late: false });
  expect(sim.requests).toBe(5000);
});

test("the past is bounded", () => {
  const sim = simulate({ kind: "steady", rate: 1000 });
  for (let i = 0; i < 40; i++) sim.advance(second);
  expect(sim.requests).toBe(40_000);
  expect(sim.marks.length).toBeLessThanOrEqual(12_000);
  for (const samples of sim.samples) expect(samples.length).toBeLessThanOrEqual(12_000 + 6000);
});

test("restart forgets everything", () => {
  const sim = simulate({ kind: "poisson" });
  sim.advance(30 * second);
  const first = counts(sim);
  sim.reset();
  expect(sim.now).toBe(epoch);
  expect(sim.requests).toBe(0);
  sim.advance(30 * second);
  expect(counts(sim)).toEqual(first);
});

test("the curve advances in time, and jumps at a request", () => {
  const sim = simulate({ kind: "none" });
  sim.advance(second);
  sim.hit(4);
  sim.advance(second);
  const samples = sim.samples[algorithms.indexOf("sliding_log")]!;
  expect(samples.every((sample, i) => i === 0 || sample.at >= samples[i - 1]!.at)).toBe(true);
  const at = samples.filter((sample) => sample.at === epoch + second).map((sample) => sample.used);
  expect([at[0], at.at(-1)]).toEqual([0, 4]);
  expect(firstFrom(samples, epoch)).toBe(0);
  expect(samples[firstFrom(samples, epoch + second)]!.at).toBeLessThan(epoch + second);
});

test("formats times", () => {
  expect([-1, 0, 5, 99_000, 1_240_000, 59_900_000, 125_000_000, 7_260_000_000].map(sayTime)).toEqual([
    "never",
    "0 s",
    "1 ms",
    "99 ms",
    "1.2 s",
    "59.9 s",
    "2 min 5 s",
    "2 h 1 min",
  ]);
  expect([0, 9_990_000, 61_000_000, 3_661_500_000].map((us) => sayClock(epoch + us))).toEqual([
    "0:00.0",
    "0:09.9",
    "1:01.0",
    "1:01:01.5",
  ]);
});
