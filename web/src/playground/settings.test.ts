import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { algorithms } from "./algorithms.ts";
import {
  defaults,
  fields,
  formatDuration,
  fromHash,
  parseDuration,
  type Settings,
  sceneSettings,
  scenes,
  toHash,
  toYAML,
} from "./settings.ts";

const second = 1_000_000;

const unusual: Settings = {
  limit: 7,
  period: 90 * second,
  burst: 9,
  anchor: "first_request",
  buckets: 24,
  edge: "strict",
  countDenied: true,
  delayAfter: 3,
  maxWait: 30 * second,
  refillEvery: 15 * second,
  kind: "bursts",
  rate: 2.5,
  size: 3,
  every: 4 * second,
  spread: 250_000,
  cost: 2,
  seed: 42,
  shown: ["leaky_bucket", "sliding_buckets"],
  speed: 0.25,
};

describe("a link", () => {
  test("leaves defaults out", () => expect(toHash(defaults)).toBe(""));
  test("carries every setting", () => {
    for (const key of Object.keys(defaults)) expect(toHash(unusual)).toContain(`${key}=`);
    expect(fromHash(`#${toHash(unusual)}`)).toEqual(unusual);
  });
  test("can be read and written by people", () =>
    expect(toHash({ ...defaults, period: 60 * second, shown: ["sliding_log"] })).toBe(
      "period=1m&shown=sliding_log",
    ));
  test("survives an encoder", () =>
    expect(fromHash("#shown=token_bucket%2Csliding_log").shown).toEqual(["token_bucket", "sliding_log"]));
  test.each([
    "limit=-1",
    "limit=1.5",
    "limit=10001",
    "limit=",
    "limit=x",
    "period=0s",
    "period=10",
    "period=2000h",
    "anchor=calendar",
    "countDenied=yes",
    "kind=__proto__",
    "rate=0",
    "rate=NaN",
    "rate=Infinity",
    "shown=",
    "shown=nothing",
    "speed=3",
    "seed=4294967296",
    "__proto__=1",
    "constructor=1",
    "%",
    "limit=%E0%A4%A",
    "==&&=",
  ])("ignores what is invalid: %s", (hash) => expect(fromHash(hash)).toEqual(defaults));
});

test("scenarios are valid, and differ", () => {
  const links = scenes.map((scene) => toHash(sceneSettings(scene)));
  expect(new Set(links).size).toBe(scenes.length);
  for (const scene of scenes) expect(fromHash(toHash(sceneSettings(scene)))).toEqual(sceneSettings(scene));
  expect(fields.limit.read("10000")).toBe(10_000);
});

test.each([
  [0, "0s"],
  [250_000, "250ms"],
  [1_500_000, "1.5s"],
  [second, "1s"],
  [90 * second, "1m30s"],
  [3600 * second, "1h"],
  [5400 * second, "1h30m"],
  [86_400 * second, "24h"],
])("%d microseconds are %s", (us, text) => {
  expect(formatDuration(us)).toBe(text);
  expect(parseDuration(text)).toBe(us);
});

test.each(["", "10", "s", "1s2", "-1s", "1 s", "1d", "9e9s"])("%j is not a time", (text) =>
  expect(parseDuration(text)).toBeUndefined(),
);

// The same files are read by Headgate itself: internal/door/admin/dashboard/rules_test.go.
test.each(algorithms)("the rule of %s", (algorithm) => {
  const golden = readFileSync(`${import.meta.dirname}/testdata/${algorithm}.yaml`, "utf8");
  expect(toYAML(unusual, algorithm)).toBe(golden);
});

test("a rule leaves defaults out", () => {
  expect(toYAML({ ...defaults, period: 60 * second }, "fixed_window")).toContain("rate: 10/minute\n");
  expect(toYAML(defaults, "token_bucket")).not.toMatch(/burst|refill/);
});
