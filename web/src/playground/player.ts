import { computed, signal } from "@preact/signals";
import { algorithms } from "./algorithms.ts";
import { fromHash, type Settings, toHash } from "./settings.ts";
import { epoch, type Mark, Simulation } from "./simulation.ts";
import type { Core } from "./wasm.ts";

/** Formats a time: 1.2 s, 3 min 20 s. -1 is never. */
export function sayTime(us: number): string {
  if (us < 0) return "never";
  const s = us / 1e6;
  if (s === 0) return "0 s";
  if (s < 0.0995) return `${Math.max(Math.round(s * 1000), 1)} ms`;
  if (s < 60) return `${s.toFixed(1)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
}

/** Formats the simulated clock: m:ss.t since the start. */
export function sayClock(at: number): string {
  const tenths = Math.floor((at - epoch) / 100_000);
  const s = Math.floor(tenths / 10);
  const two = (n: number) => String(n).padStart(2, "0");
  const hours = Math.floor(s / 3600);
  return `${hours > 0 ? `${hours}:` : ""}${hours > 0 ? two(Math.floor(s / 60) % 60) : Math.floor(s / 60)}:${two(s % 60)}.${tenths % 10}`;
}

/**
 * Player plays a simulation: it moves the simulated clock with the frames of the
 * screen, and reports changes by signals.
 */
export class Player {
  readonly simulation: Simulation;
  readonly settings = signal<Settings>(fromHash(""));
  readonly running = signal(false);
  /** Counts frames. Charts subscribe to it. */
  readonly frame = signal(0);
  /** Counts ten times per second, for text. */
  readonly beat = signal(0);
  /** There are more requests than this machine can process, so the clock is slower. */
  readonly late = signal(false);
  /** The text for screen readers: set after a step or a hit, never while running. */
  readonly said = signal("");
  readonly link = computed(() => toHash(this.settings.value));
  /** The system prefers reduced motion: draw two frames per second. */
  readonly calm: boolean;

  #last: number | undefined;
  #beaten = 0;
  #handle = 0;

  constructor(core: Core, settings: Settings, calm: boolean) {
    this.settings.value = settings;
    this.simulation = new Simulation(core, settings);
    this.calm = calm;
  }

  /** Changes some settings. Usage is kept. */
  change(some: Partial<Settings>): void {
    this.settings.value = { ...this.settings.value, ...some };
    this.simulation.change(this.settings.value);
    this.#show();
  }

  /** Restarts with other settings. */
  open(settings: Settings): void {
    this.settings.value = settings;
    this.simulation.change(settings);
    this.restart();
  }

  /** Restarts. */
  restart(): void {
    this.simulation.reset();
    this.said.value = "";
    this.#show();
  }

  play(): void {
    if (this.running.value) return;
    this.running.value = true;
    this.said.value = "";
    this.#last = undefined;
    this.#handle = requestAnimationFrame(this.#tick);
  }

  pause(): void {
    this.running.value = false;
    this.late.value = false;
    cancelAnimationFrame(this.#handle);
    this.#show();
  }

  /** Advances to the next request, and pauses there. */
  step(): void {
    this.pause();
    this.#tell(this.simulation.step().marks);
    this.#show();
  }

  /** Advances by a time, and pauses there. */
  skip(us: number): void {
    this.pause();
    this.#tell(this.simulation.advance(us).marks);
    this.#show();
  }

  /** Sends requests now. */
  hit(n: number): void {
    const marks = this.simulation.hit(n);
    if (!this.running.value) this.#tell(marks);
    this.#show();
  }

  readonly #tick = (time: number) => {
    if (!this.running.value) return;
    this.#handle = requestAnimationFrame(this.#tick);
    this.#last ??= time;
    const gap = time - this.#last;
    if (this.calm && gap < 500) return;
    this.#last = time;
    // A tab that was suspended does not catch up.
    const real = Math.min(gap, this.calm ? 600 : 100);
    this.late.value = this.simulation.advance(real * 1000 * this.settings.value.speed).late;
    this.frame.value++;
    if (time - this.#beaten >= 100) {
      this.#beaten = time;
      this.beat.value++;
    }
  };

  #show(): void {
    this.frame.value++;
    this.beat.value++;
  }

  #tell(marks: readonly Mark[]): void {
    const at = sayClock(this.simulation.now);
    const shown = this.settings.value.shown;
    if (marks.length === 0) {
      this.said.value = `${at}: no requests`;
      return;
    }
    const parts = shown.map((name) => {
      const lane = algorithms.indexOf(name);
      const allowed = marks.filter((mark) => mark.answers[lane]!.allowed).length;
      const title = name.replaceAll("_", " ");
      const last = marks.at(-1)!.answers[lane]!;
      if (marks.length === 1 && allowed === 1) return `${title}: allowed`;
      if (marks.length === 1) return `${title}: refused, retry after ${sayTime(last.retryAfter)}`;
      return `${title}: ${allowed} of ${marks.length} allowed`;
    });
    this.said.value = `${at}: ${parts.join("; ")}`;
  }
}
