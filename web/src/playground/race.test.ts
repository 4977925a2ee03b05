// @vitest-environment node
import { beforeAll, expect, test } from "vitest";
import { arrivalsOf, type Film, film, raceScenes, sayResult } from "./race.ts";
import { defaults, specOf } from "./settings.ts";
import { core } from "./testing.ts";
import type { Core } from "./wasm.ts";

let go: Core;
beforeAll(async () => {
  go = await core();
});

const totals = (f: Film) => ({
  allowed: f.turns.filter((turn) => turn.allowed).length,
  tooMany: f.turns.filter((turn) => turn.verdict === "too_many").length,
  lost: f.turns.reduce((sum, turn) => sum + turn.lost, 0),
});

test("each fault breaks the limit, and its cure keeps it with the same requests", () => {
  const results = raceScenes.map(({ name, settings }) => {
    const f = film(go, settings);
    expect(f.error).toBe("");
    const { allowed, tooMany, lost } = totals(f);
    return [name, allowed, tooMany, lost > 0];
  });
  expect(results).toEqual([
    ["Lost update", 10, 5, true],
    ["One atomic step", 5, 0, false],
    ["Each for itself", 10, 5, false],
    ["A shared store", 5, 0, false],
  ]);
  expect(arrivalsOf(raceScenes[0]!.settings)).toEqual(arrivalsOf(raceScenes[1]!.settings));
});

test("moments are told in order, and the result at any time", () => {
  const f = film(go, { ...raceScenes[0]!.settings, limit: 1, requests: 2, gap: 15 });
  expect(f.moments.map(({ at, text, wrong }) => [at / 1000, text, wrong])).toEqual([
    [20, "Server 1 reads 0 of 1.", false],
    [35, "Server 2 reads 0 of 1.", false],
    [40, "Server 1 allows its request and writes the new count.", false],
    [55, "Server 2 allows its request and writes the new count. That is more than the limit.", true],
    [60, "The store has the count of server 1: 1 of 1.", false],
    [
      75,
      "The store has the count of server 2: 1 of 1. One request that others allowed in between is forgotten.",
      true,
    ],
  ]);
  expect(sayResult(f, 0)).toBe("0 of 0 allowed by fixed window, 1 in 10 s: within the limit");
  expect(sayResult(f, 40_000)).toBe("1 of 1 allowed by fixed window, 1 in 10 s: within the limit");
  expect(sayResult(f, f.end)).toBe("2 of 2 allowed by fixed window, 1 in 10 s: 1 too many");
});

test("the state of the page's own lanes stays", () => {
  go.set(2, specOf(defaults, "fixed_window"));
  go.hits(2, [{ at: 1_767_225_600_000_000, cost: 3 }]);
  const before = go.look(2, 1_767_225_600_000_000, 1);
  film(go, raceScenes[0]!.settings);
  expect(go.look(2, 1_767_225_600_000_000, 1)).toEqual(before);
});

test("one server alone, or one that is always chosen, loses nothing without delay", () => {
  for (const change of [{ servers: 1 }, { balancer: "first" as const }]) {
    const f = film(go, { ...raceScenes[0]!.settings, ...change, roundTrip: 0 });
    expect(totals(f)).toEqual({ allowed: 5, tooMany: 0, lost: 0 });
  }
});
