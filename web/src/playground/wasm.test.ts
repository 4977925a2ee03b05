// @vitest-environment node
import { beforeAll, expect, test } from "vitest";
import { algorithms } from "./algorithms.ts";
import { plain } from "./load.ts";
import { defaults, specOf } from "./settings.ts";
import { epoch } from "./simulation.ts";
import { core } from "./testing.ts";
import type { Core } from "./wasm.ts";

let go: Core;
beforeAll(async () => {
  go = await core();
});

const second = 1_000_000;

test("an invalid limit is refused with the error of Go, and the old one stays", () => {
  const spec = specOf({ ...defaults, limit: 3 }, "sliding_buckets");
  expect(go.set(1, spec)).toBe("");
  expect(go.set(1, { ...spec, buckets: 513 })).toMatch(/^invalid limit: /);
  expect(go.set(1, { ...spec, limit: -1 })).toMatch(/^invalid limit: /);
  expect(go.set(1, { ...spec, limit: 1.5 })).toMatch(/whole numbers/);
  expect(go.set(1, { ...spec, period: 1e17 })).toMatch(/^invalid limit: /);
  expect(go.look(1, epoch, 1).capacity).toBe(3);
});

test("more requests than fit into the buffer are answered in order", () => {
  go.set(2, specOf({ ...defaults, limit: 7000, period: second }, "sliding_log"));
  const answers = go.hits(
    2,
    Array.from({ length: 20_000 }, (_, i) => ({ at: epoch + i, cost: 1 })),
  );
  expect(answers).toHaveLength(20_000);
  expect(answers.findIndex((answer) => !answer.allowed)).toBe(7000);
  expect(answers[7000]!.retryAfter).toBe(second - 7000);
  expect(go.look(2, epoch + 20_000, 1)).toMatchObject({
    allowed: 7000,
    refused: 13_000,
    bytes: 8 * 992, // the log is packed: about a byte for each
    peak: 7000,
  });
});

test("an example: 5 per minute around a window boundary", () => {
  const rows: [(typeof algorithms)[number], number, number][] = [
    ["fixed_window", 10, 5],
    ["sliding_window", 5, 0],
    ["sliding_log", 5, 0],
    ["sliding_buckets", 5, 0],
    ["token_bucket", 5, 0],
  ];
  for (const [algorithm, allowed, tooMany] of rows) {
    const lane = algorithms.indexOf(algorithm);
    go.set(lane, specOf({ ...defaults, limit: 5, period: 60 * second, buckets: 60 }, algorithm));
    go.reset(lane);
    const at = (s: number) => Array.from({ length: 5 }, () => ({ at: epoch + s * second, cost: 1 }));
    go.hits(lane, [...at(59), ...at(60)]);
    expect(go.look(lane, epoch + 60 * second, 1), algorithm).toMatchObject({
      allowed,
      refused: 10 - allowed,
      tooMany,
    });
  }
});

test("reading the usage at any time changes nothing", () => {
  go.set(3, specOf({ ...defaults, limit: 4, period: 60 * second }, "token_bucket"));
  go.reset(3);
  go.hits(3, [{ at: epoch, cost: 4 }]);
  expect(go.used(3, [epoch, epoch + 7.5 * second, epoch + 60 * second, epoch])).toEqual([4, 3.5, 0, 4]);
});

test("the parts of a state", () => {
  go.set(4, specOf({ ...defaults, limit: 7, period: 60 * second }, "sliding_window"));
  go.reset(4);
  const minute = 60 * second;
  go.hits(4, [
    { at: epoch + 10 * second, cost: 5 },
    { at: epoch + minute, cost: 2 },
    { at: epoch + minute + 18 * second, cost: 1 },
  ]);
  expect(go.look(4, epoch + minute + 18 * second, 1)).toMatchObject({
    remaining: 1,
    spans: [
      { start: epoch, end: epoch + minute, count: 5, counts: 3 },
      { start: epoch + minute, end: epoch + 2 * minute, count: 3, counts: 3 },
    ],
  });
});

test("gzip is unpacked, anything else is left unchanged", async () => {
  const text = new TextEncoder().encode("wasm");
  const packed = new Response(new Blob([text]).stream().pipeThrough(new CompressionStream("gzip")));
  for (const bytes of [text, new Uint8Array(await packed.arrayBuffer())]) {
    expect(new TextDecoder().decode(await plain(bytes))).toBe("wasm");
  }
});
