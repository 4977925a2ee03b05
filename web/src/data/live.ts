import { signal } from "@preact/signals";
import { History } from "./history.ts";
import { Stream } from "./stream.ts";
import type { Tick } from "./types.ts";

/** Live counts, with the last minutes as history. */
export class Live {
  readonly history = new History();
  /** Changes with every change of the history. */
  readonly beat = signal(0);
  /** The state of the store in the last tick. */
  readonly store = signal<Tick["store"] | undefined>(undefined);
  readonly stream: Stream;

  constructor(url = "./v1/live") {
    this.stream = new Stream(
      url,
      {
        hello: (data) => this.#hear((data as { ticks: Tick[] }).ticks),
        tick: (data) => this.#hear([data as Tick]),
        // Some seconds were not sent: a new connection starts with them.
        lost: () => this.stream.reopen(),
      },
      6000,
    );
  }

  #hear(ticks: readonly Tick[]): void {
    const newest = ticks.at(-1);
    // If time goes backwards, this is another machine, or its clock was set.
    if (newest && Date.parse(newest.t) < this.history.last - 2000) this.history.clear();
    let heard = false;
    for (const tick of ticks) heard = this.history.add(tick) || heard;
    if (newest) this.store.value = newest.store;
    if (heard || this.beat.value === 0) this.beat.value++;
  }
}
