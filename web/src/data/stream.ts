import { type Signal, signal } from "@preact/signals";

/** The state of a connection: closed on purpose, being opened, open, or broken. */
export type Connection = "off" | "connecting" | "live" | "lost";

/** The longest delay between two attempts, in milliseconds. */
const longest = 15_000;

/** The source, timers and random numbers of a {@link Stream}. */
export interface StreamParts {
  open: (url: string) => EventSource;
  later: (f: () => void, ms: number) => ReturnType<typeof setTimeout>;
  chance: () => number;
}

const real: StreamParts = {
  open: (url) => new EventSource(url),
  later: (f, ms) => setTimeout(f, ms),
  chance: () => Math.random(),
};

/**
 * A stream of server-sent events that reconnects. A browser's EventSource gives
 * up for good after one response other than 200, such as from a proxy while
 * Headgate restarts. This one keeps trying, with longer delays.
 */
export class Stream {
  readonly state: Signal<Connection> = signal<Connection>("off");
  /** The time of the next attempt, by the clock of the browser; 0 if none is due. */
  readonly retryAt: Signal<number> = signal(0);
  readonly #url: string;
  readonly #on: Record<string, (data: unknown) => void>;
  readonly #silence: number;
  readonly #parts: StreamParts;
  #source: EventSource | undefined;
  #failures = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #watch: ReturnType<typeof setTimeout> | undefined;

  /**
   * on has a handler for each event name. A connection without any event for
   * silence milliseconds counts as broken; 0 turns this check off.
   */
  constructor(
    url: string,
    on: Record<string, (data: unknown) => void>,
    silence = 0,
    parts: StreamParts = real,
  ) {
    this.#url = url;
    this.#on = on;
    this.#silence = silence;
    this.#parts = parts;
  }

  /** Connects, unless it is connected. */
  open(): void {
    if (this.#source) return;
    clearTimeout(this.#timer);
    this.retryAt.value = 0;
    if (this.state.value !== "lost") this.state.value = "connecting";
    const source = this.#parts.open(this.#url);
    this.#source = source;
    source.onopen = () => {
      this.#failures = 0;
      this.state.value = "live";
      this.#heard();
    };
    source.onerror = () => this.#fail();
    for (const [name, act] of Object.entries(this.#on)) {
      source.addEventListener(name, (event) => {
        this.#heard();
        act(JSON.parse((event as MessageEvent<string>).data));
      });
    }
    this.#heard();
  }

  /** Reconnects at once. */
  reopen(): void {
    this.#shut();
    this.open();
  }

  /** Disconnects until {@link open}. */
  close(): void {
    this.#shut();
    this.retryAt.value = 0;
    this.state.value = "off";
  }

  #shut(): void {
    clearTimeout(this.#timer);
    clearTimeout(this.#watch);
    this.#source?.close();
    this.#source = undefined;
  }

  #fail(): void {
    this.#shut();
    this.state.value = "lost";
    const pause = Math.min(1000 * 2 ** this.#failures, longest) * (0.75 + this.#parts.chance() / 2);
    this.#failures++;
    this.retryAt.value = Date.now() + pause;
    this.#timer = this.#parts.later(() => this.open(), pause);
  }

  #heard(): void {
    clearTimeout(this.#watch);
    if (this.#silence > 0) this.#watch = this.#parts.later(() => this.#fail(), this.#silence);
  }
}

/** Keeps a stream open while the page is visible. Returns a function that closes it. */
export function whileSeen(stream: Stream): () => void {
  // A browser opens six connections per host, and a stream takes one, so a tab in
  // the background closes its own.
  const look = () => (document.hidden ? stream.close() : stream.open());
  document.addEventListener("visibilitychange", look);
  look();
  return () => {
    document.removeEventListener("visibilitychange", look);
    stream.close();
  };
}
