import { type Signal, signal } from "@preact/signals";
import { Stream } from "../data/stream.ts";
import type { Decision } from "../data/types.ts";

/** The number of decisions kept in view. */
export const most = 200;

/** Which decisions to watch. An empty field matches all. */
export interface Filter {
  domain: string;
  rule: string;
  outcome: string;
  key: string;
  sample: string;
}

/** A filter that matches everything. */
export const everything: Filter = { domain: "", rule: "", outcome: "", key: "", sample: "1" };

/** The address of the events that match a filter. */
export function address(filter: Filter): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(filter)) {
    if (value !== "" && !(name === "sample" && value === "1")) params.set(name, value);
  }
  return `./v1/events${params.size > 0 ? `?${params}` : ""}`;
}

/** A decision and its number in order of arrival. */
export interface Seen extends Decision {
  n: number;
}

/** The newest decisions that match a filter. */
export class Tail {
  readonly stream: Stream;
  /** Newest first. It changes at most a few times per second. */
  readonly shown: Signal<readonly Seen[]> = signal([]);
  readonly seen = signal(0);
  /** The number of decisions that the server skipped because there were too many. */
  readonly lost = signal(0);
  #fresh: Seen[] = [];
  #n = 0;
  #lost = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(filter: Filter) {
    this.stream = new Stream(
      address(filter),
      {
        decision: (data) => this.hear(data as Decision),
        lost: (data) => {
          this.#lost += (data as { lost: number }).lost;
          this.#soon();
        },
        // The server says every few seconds that it is there, so that silence means that it
        // is not, and not that there are no requests.
        alive: () => {},
      },
      9000,
    );
  }

  /** Adds a decision. It is shown a moment later, together with those that follow. */
  hear(decision: Decision): void {
    this.#n++;
    this.#fresh.push({ ...decision, n: this.#n });
    if (this.#fresh.length > most) this.#fresh.shift();
    this.#soon();
  }

  #soon(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.show();
    }, 300);
  }

  /** Shows all decisions received so far. */
  show(): void {
    this.shown.value = [...this.#fresh.reverse(), ...this.shown.value].slice(0, most);
    this.#fresh = [];
    this.seen.value = this.#n;
    this.lost.value = this.#lost;
  }
}
