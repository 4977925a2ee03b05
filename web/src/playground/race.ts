import { type Algorithm, about } from "./algorithms.ts";
import { defaults, specOf } from "./settings.ts";
import { epoch } from "./simulation.ts";
import { random } from "./streams.ts";
import type { Arrival, Core, Sharing, Turn } from "./wasm.ts";

/** How a load balancer chooses a server: each in turn, at random, or always the first. */
export const balancers = ["turns", "random", "first"] as const;
export type Balancer = (typeof balancers)[number];

/** Several servers that limit the requests of one key. Times are in milliseconds. */
export interface RaceSettings {
  sharing: Sharing;
  algorithm: Algorithm;
  limit: number;
  servers: number;
  balancer: Balancer;
  requests: number;
  /** The time from one request to the next. */
  gap: number;
  /** How long a server waits for the answer of the store. */
  roundTrip: number;
}

/** The range of each number. */
export const ranges = {
  limit: [1, 20],
  servers: [1, 4],
  requests: [1, 40],
  gap: [0, 1000],
  roundTrip: [0, 500],
} as const;

/** The period of every limit here, in milliseconds. */
export const period = 10_000;

/** A scene, with a hint on what to watch. */
export interface RaceScene {
  name: string;
  watch: string;
  settings: RaceSettings;
}

const close: Omit<RaceSettings, "sharing"> = {
  algorithm: "fixed_window",
  limit: 5,
  servers: 2,
  balancer: "turns",
  requests: 12,
  gap: 30,
  roundTrip: 40,
};
const apart: Omit<RaceSettings, "sharing"> = { ...close, gap: 60, roundTrip: 20 };

/** The scenes: each fault, and its cure with the same requests. */
export const raceScenes: readonly RaceScene[] = [
  {
    name: "Lost update",
    watch:
      "Each server reads the count, decides, and writes a new count. A second server that reads in between overwrites the first, so more requests pass than the limit.",
    settings: { ...close, sharing: "read_then_write" },
  },
  {
    name: "One atomic step",
    watch: "The same requests, but the store decides in one step: nothing can come in between.",
    settings: { ...close, sharing: "atomic_step" },
  },
  {
    name: "Each for itself",
    watch: "Each server has its own count, so every server allows the full limit.",
    settings: { ...apart, sharing: "apart" },
  },
  {
    name: "A shared store",
    watch: "The same requests with one count for all servers.",
    settings: { ...apart, sharing: "atomic_step" },
  },
];

/** Something that happens, as a sentence. */
export interface Moment {
  at: number;
  turn: Turn;
  text: string;
  /** It is where the limit is broken. */
  wrong: boolean;
}

/**
 * A race from its first request to its last answer. Times are in microseconds from its start; a
 * turn that wrote nothing has -1.
 */
export interface Film {
  settings: RaceSettings;
  turns: readonly Turn[];
  moments: readonly Moment[];
  end: number;
  /** The error in the limit, or "". */
  error: string;
}

/** The lane of the WebAssembly that races use; the algorithms have the first six. */
const raceLane = 6;

/** The requests of a race. */
export function arrivalsOf(s: RaceSettings): Arrival[] {
  const next = random(1);
  const server = {
    turns: (i: number) => i % s.servers,
    random: () => Math.floor(next() * s.servers),
    first: () => 0,
  };
  return Array.from({ length: s.requests }, (_, i) => ({
    at: epoch + i * s.gap * 1000,
    server: server[s.balancer](i),
  }));
}

/** Runs a race with Headgate's own steps. */
export function film(core: Core, settings: RaceSettings): Film {
  const { limit, algorithm, sharing, servers, roundTrip } = settings;
  const error = core.set(raceLane, specOf({ ...defaults, limit, period: period * 1000 }, algorithm));
  const ran = error ? [] : core.race(raceLane, sharing, servers, roundTrip * 500, arrivalsOf(settings));
  const turns = ran.map((turn) => ({
    ...turn,
    at: turn.at - epoch,
    read: turn.read - epoch,
    wrote: turn.wrote > 0 ? turn.wrote - epoch : -1,
    answered: turn.answered - epoch,
  }));
  return {
    settings,
    turns,
    moments: turns.flatMap((turn) => momentsOf(turn, settings)).sort((a, b) => a.at - b.at),
    end: Math.max(...turns.map((turn) => turn.answered), 1),
    error,
  };
}

/** When a server decides with a state that it has read. */
export const decided = (turn: Turn, s: RaceSettings): number =>
  turn.read + (s.sharing === "read_then_write" ? s.roundTrip * 500 : 0);

function momentsOf(turn: Turn, s: RaceSettings): Moment[] {
  const name = `Server ${turn.server + 1}`;
  const wrong = turn.verdict === "too_many";
  const over = wrong ? " That is more than the limit." : "";
  const of = (used: number) => `${sayUsed(used)} of ${s.limit}`;
  const refuses = `refuses its request: ${of(turn.found)} are in use.`;
  switch (s.sharing) {
    case "atomic_step": {
      const text = turn.allowed
        ? `The store counts a request of server ${turn.server + 1} in one step: ${of(turn.left)}.`
        : `The store ${refuses.replace("its request", `a request of server ${turn.server + 1}`)}`;
      return [{ at: turn.read, turn, text: text + over, wrong }];
    }
    case "apart": {
      const text = turn.allowed
        ? `${name} allows its request. Its own count is now ${of(turn.left)}.`
        : `${name} ${refuses}`;
      return [{ at: turn.read, turn, text: text + over, wrong }];
    }
    case "read_then_write": {
      const read = { at: turn.read, turn, text: `${name} reads ${of(turn.found)}.`, wrong: false };
      const at = decided(turn, s);
      if (!turn.allowed) return [read, { at, turn, text: `${name} ${refuses}`, wrong: false }];
      const forgets =
        turn.lost > 0
          ? ` ${turn.lost === 1 ? "One request" : `${turn.lost} requests`} that others allowed in between ${turn.lost === 1 ? "is" : "are"} forgotten.`
          : "";
      return [
        read,
        { at, turn, text: `${name} allows its request and writes the new count.${over}`, wrong },
        {
          at: turn.wrote,
          turn,
          text: `The store has the count of server ${turn.server + 1}: ${of(turn.left)}.${forgets}`,
          wrong: turn.lost > 0,
        },
      ];
    }
  }
}

/** Formats a time. */
export function sayMs(us: number): string {
  return `${Math.round(us / 1000)} ms`;
}

/** Formats how much is in use. */
export function sayUsed(used: number): string {
  return used.toFixed(Number.isInteger(used) ? 0 : 1);
}

/** The result of a race up to a time, as a sentence. */
export function sayResult(f: Film, now: number): string {
  const done = f.turns.filter((turn) => decided(turn, f.settings) <= now);
  const allowed = done.filter((turn) => turn.allowed).length;
  const tooMany = done.filter((turn) => turn.verdict === "too_many").length;
  const verdict = tooMany > 0 ? `${tooMany} too many` : "within the limit";
  return `${allowed} of ${done.length} allowed by ${about[f.settings.algorithm].title.toLowerCase()}, ${f.settings.limit} in ${period / 1000} s: ${verdict}`;
}
