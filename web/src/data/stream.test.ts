import { beforeEach, expect, test } from "vitest";
import { Stream } from "./stream.ts";

/** An EventSource controlled by a test. */
class Fake extends EventTarget {
  onopen: (() => void) | null = null;
  onerror: (() => void) | null = null;
  closed = false;
  close() {
    this.closed = true;
  }
  send(name: string, data: unknown) {
    this.dispatchEvent(Object.assign(new Event(name), { data: JSON.stringify(data) }));
  }
}

let sources: Fake[];
let timers: { f: () => void; ms: number }[];
let heard: unknown[];

const stream = (silence = 0) =>
  new Stream("./v1/live", { tick: (data) => heard.push(data) }, silence, {
    open: () => {
      const fake = new Fake();
      sources.push(fake);
      return fake as unknown as EventSource;
    },
    later: (f, ms) => {
      timers.push({ f, ms });
      return 0 as unknown as ReturnType<typeof setTimeout>;
    },
    chance: () => 0.5,
  });

beforeEach(() => {
  sources = [];
  timers = [];
  heard = [];
});

test("connects, receives, and closes", () => {
  const s = stream();
  s.open();
  expect(s.state.value).toBe("connecting");
  sources[0]!.onopen!();
  expect(s.state.value).toBe("live");
  sources[0]!.send("tick", { n: 1 });
  expect(heard).toEqual([{ n: 1 }]);
  s.close();
  expect([s.state.value, sources[0]!.closed]).toEqual(["off", true]);
});

test("reconnects with growing delays, and at once when told to", () => {
  const s = stream();
  s.open();
  for (let i = 0; i < 6; i++) {
    sources.at(-1)!.onerror!();
    expect(s.state.value).toBe("lost");
    timers.at(-1)!.f();
  }
  expect(timers.map((t) => t.ms)).toEqual([1000, 2000, 4000, 8000, 15_000, 15_000]);
  expect(sources).toHaveLength(7);
  s.reopen();
  expect(sources).toHaveLength(8);
  sources.at(-1)!.onopen!();
  expect([s.state.value, s.retryAt.value]).toEqual(["live", 0]);
  sources.at(-1)!.onerror!();
  expect(timers.at(-1)!.ms).toBe(1000);
});

test("a silent connection counts as broken", () => {
  const s = stream(6000);
  s.open();
  sources[0]!.onopen!();
  expect(timers.at(-1)!.ms).toBe(6000);
  timers.at(-1)!.f();
  expect([s.state.value, sources[0]!.closed]).toEqual(["lost", true]);
});
