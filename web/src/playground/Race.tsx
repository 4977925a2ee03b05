import { useSignal } from "@preact/signals";
import { useEffect, useId, useMemo, useRef } from "preact/hooks";
import "./race.css";
import { Choice } from "../ui/Choice.tsx";
import { about, algorithms } from "./algorithms.ts";
import {
  type Balancer,
  balancers,
  decided,
  type Film,
  film,
  type RaceSettings,
  raceScenes,
  ranges,
  sayMs,
  sayResult,
  sayUsed,
} from "./race.ts";
import { type Core, type Sharing, sharings, type Turn } from "./wasm.ts";

/** How long the animation of a race takes, in milliseconds. */
const showing = 9000;

const sharingNames: Record<Sharing, string> = {
  read_then_write: "Shared: read, then write",
  atomic_step: "Shared: one atomic step",
  apart: "Each server for itself",
};

const balancerNames: Record<Balancer, string> = {
  turns: "In turn",
  random: "Random",
  first: "Always the first",
};

/** Several servers that limit the same key: what goes wrong, and the cure. */
export function Race(props: { core: Core; calm: boolean }) {
  const settings = useSignal<RaceSettings>(raceScenes[0]!.settings);
  const made = useMemo(() => film(props.core, settings.value), [settings.value]);
  const now = useSignal(0);
  const running = useSignal(false);
  const change = (some: Partial<RaceSettings>) => {
    settings.value = { ...settings.value, ...some };
    now.value = 0;
    running.value = false;
  };
  useFrames(running.value, (elapsed) => {
    now.value = Math.min(now.value + (elapsed / showing) * made.end, made.end);
    running.value = now.value < made.end;
  });
  const at = now.value;
  const scene = raceScenes.find((s) => JSON.stringify(s.settings) === JSON.stringify(settings.value));
  return (
    <section class="panel race" aria-labelledby="race">
      <div class="section-head">
        <h2 id="race">Several servers</h2>
        <p class="muted small">
          Requests of one key reach several servers. Each line is a message between a server and the store.
          Headgate’s own steps decide.
        </p>
      </div>
      <div class="race-body">
        <div class="row">
          {raceScenes.map((s) => (
            <button
              key={s.name}
              type="button"
              class="button scene"
              aria-pressed={s === scene}
              onClick={() => {
                change(s.settings);
                running.value = !props.calm;
              }}
            >
              {s.name}
            </button>
          ))}
        </div>
        <p class="watch">{scene ? scene.watch : "Custom settings. Choose a scene above to replace them."}</p>
        <RaceControls settings={settings.value} change={change} />
        {made.error ? (
          <p class="error" role="alert">
            {made.error}
          </p>
        ) : (
          <>
            <Steps
              film={made}
              now={at}
              running={running.value}
              move={(to) => {
                running.value = false;
                now.value = to;
              }}
              play={() => {
                if (at >= made.end) now.value = 0;
                running.value = !running.value;
              }}
              calm={props.calm}
            />
            <Diagram film={made} now={at} />
            <Told film={made} now={at} quiet={running.value} />
          </>
        )}
      </div>
    </section>
  );
}

/** Calls with the time since the last frame, while running. */
function useFrames(running: boolean, frame: (elapsed: number) => void) {
  const call = useRef(frame);
  call.current = frame;
  useEffect(() => {
    if (!running) return;
    let last: number | undefined;
    const tick = (time: number) => {
      handle = requestAnimationFrame(tick);
      call.current(Math.min(time - (last ?? time), 100));
      last = time;
    };
    let handle = requestAnimationFrame(tick);
    return () => cancelAnimationFrame(handle);
  }, [running]);
}

function RaceControls(props: { settings: RaceSettings; change: (some: Partial<RaceSettings>) => void }) {
  const { settings, change } = props;
  return (
    <div class="race-controls">
      <Choice
        label="How servers count"
        value={settings.sharing}
        options={sharings.map((name) => [name, sharingNames[name]] as const)}
        onChange={(sharing) => change({ sharing })}
      />
      <Choice
        label="Algorithm"
        value={settings.algorithm}
        options={algorithms.map((name) => [name, about[name].title] as const)}
        onChange={(algorithm) => change({ algorithm })}
      />
      <Choice
        label="Load balancer"
        value={settings.balancer}
        options={balancers.map((name) => [name, balancerNames[name]] as const)}
        onChange={(balancer) => change({ balancer })}
      />
      <Amount name="limit" label="Limit in 10 s" settings={settings} change={change} />
      <Amount name="servers" label="Servers" settings={settings} change={change} />
      <Amount name="requests" label="Requests" settings={settings} change={change} />
      <Amount name="gap" label="Gap, in ms" settings={settings} change={change} />
      <Amount name="roundTrip" label="Round trip, in ms" settings={settings} change={change} />
    </div>
  );
}

function Amount(props: {
  name: keyof typeof ranges;
  label: string;
  settings: RaceSettings;
  change: (some: Partial<RaceSettings>) => void;
}) {
  const { name, settings } = props;
  const id = useId();
  const wrong = useSignal(false);
  const [least, most] = ranges[name];
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      <input
        id={id}
        class="input"
        type="number"
        inputMode="numeric"
        min={least}
        max={most}
        value={settings[name]}
        aria-invalid={wrong.value}
        aria-describedby={wrong.value ? `${id}-wrong` : undefined}
        onInput={(e) => {
          const value = e.currentTarget.valueAsNumber;
          wrong.value = !(Number.isInteger(value) && value >= least && value <= most);
          if (!wrong.value) props.change({ [name]: value });
        }}
      />
      {wrong.value && (
        <p class="error" id={`${id}-wrong`}>
          Enter a whole number from {least} to {most}
        </p>
      )}
    </div>
  );
}

function Steps(props: {
  film: Film;
  now: number;
  running: boolean;
  calm: boolean;
  move: (to: number) => void;
  play: () => void;
}) {
  const { film, now } = props;
  const following = film.moments.find((moment) => moment.at > now);
  const passed = film.moments.filter((moment) => moment.at < now).at(-1);
  return (
    <div class="row">
      {!props.calm && (
        <button type="button" class="button wide-button" onClick={props.play}>
          {props.running ? "Pause race" : "Play race"}
        </button>
      )}
      <button
        type="button"
        class={`button ${props.running ? "" : "primary"}`}
        disabled={now >= film.end}
        onClick={() => props.move(following?.at ?? film.end)}
      >
        Next step
      </button>
      <button type="button" class="button" disabled={now === 0} onClick={() => props.move(passed?.at ?? 0)}>
        Previous step
      </button>
      <label class="race-time">
        <span class="small muted">Time</span>
        <input
          type="range"
          min={0}
          max={film.end}
          step={1000}
          value={now}
          aria-valuetext={sayMs(now)}
          onInput={(e) => props.move(e.currentTarget.valueAsNumber)}
        />
        <span class="num small">{sayMs(now)}</span>
      </label>
    </div>
  );
}

/** The heights of the rows of the diagram, in pixels. */
const rowHeight = 52;
const storeHeight = 76;

/** The messages over time: a row for each server, and one for the store. */
function Diagram(props: { film: Film; now: number }) {
  const { film, now } = props;
  const { servers, sharing } = film.settings;
  const store = sharing === "apart" ? undefined : servers * rowHeight + storeHeight / 2;
  const height = servers * rowHeight + (store === undefined ? 0 : storeHeight);
  const x = (at: number) => `${3 + (94 * at) / film.end}%`;
  const line = (server: number) => (server + 0.5) * rowHeight;
  return (
    <div class="race-diagram">
      <div class="race-names" aria-hidden="true">
        {Array.from({ length: servers }, (_, i) => (
          <span key={i} style={{ top: `${line(i)}px` }}>
            Server {i + 1}
          </span>
        ))}
        {store !== undefined && <span style={{ top: `${store}px` }}>Store</span>}
      </div>
      <svg class="race-picture" height={height} role="img" aria-label={sayResult(film, now)}>
        {Array.from({ length: servers }, (_, i) => (
          <line key={i} class="rail" x1="0" x2="100%" y1={line(i)} y2={line(i)} />
        ))}
        {store !== undefined && <line class="rail store" x1="0" x2="100%" y1={store} y2={store} />}
        <line class="cursor" x1={x(now)} x2={x(now)} y1="0" y2={height} />
        {/* No line crosses out what was decided. */}
        {film.turns.map((turn, i) => (
          <Messages
            key={i}
            turn={turn}
            film={film}
            now={now}
            x={x}
            server={line(turn.server)}
            store={store}
          />
        ))}
        {film.turns.map((turn, i) => (
          <Marks key={i} turn={turn} film={film} now={now} x={x} server={line(turn.server)} store={store} />
        ))}
      </svg>
    </div>
  );
}

interface Drawn {
  turn: Turn;
  film: Film;
  now: number;
  x: (at: number) => string;
  server: number;
  store: number | undefined;
}

/** When the answer to a request is known where it came in. */
const answeredAt = (turn: Turn, s: RaceSettings) =>
  s.sharing === "atomic_step" ? turn.answered : decided(turn, s);

/** The messages of one request. */
function Messages(props: Drawn) {
  const { turn, now, x, server, store } = props;
  const s = props.film.settings;
  // A leg is drawn as far as it has come.
  const leg = (from: number, to: number, y1: number, y2: number, kind: string) => {
    if (now <= from) return null;
    const part = to > from ? Math.min((now - from) / (to - from), 1) : 1;
    return (
      <line
        class={`leg ${kind}`}
        x1={x(from)}
        y1={y1}
        x2={x(from + (to - from) * part)}
        y2={y1 + (y2 - y1) * part}
      />
    );
  };
  if (store === undefined) return null;
  return (
    <g class={turn.allowed ? "allowed" : "refused"}>
      {leg(turn.at, turn.read, server, store, "")}
      {leg(turn.read, answeredAt(turn, s), store, server, "")}
      {s.sharing === "read_then_write" &&
        turn.wrote > 0 &&
        leg(decided(turn, s), turn.wrote, server, store, "writes")}
    </g>
  );
}

/** The arrival of one request, the decision, and the count that it leaves. */
function Marks(props: Drawn) {
  const { turn, now, x, server, store } = props;
  const back = answeredAt(turn, props.film.settings);
  const wrong = turn.verdict === "too_many";
  const counted = turn.wrote >= 0 && now >= turn.wrote;
  return (
    <g class={turn.allowed ? "allowed" : "refused"}>
      {now >= turn.at && <circle class="arrival" cx={x(turn.at)} cy={server} r="3" />}
      {now >= back && (
        <g>
          {wrong && <circle class="wrong" cx={x(back)} cy={server} r="12" />}
          <circle class="verdict" cx={x(back)} cy={server} r="8" />
          <text class="sign" x={x(back)} y={server}>
            {turn.allowed ? "✓" : "×"}
          </text>
        </g>
      )}
      {counted && (
        <text class={`count ${turn.lost > 0 ? "lost" : ""}`} x={x(turn.wrote)} y={(store ?? server) + 24}>
          {sayUsed(turn.left)}
          {turn.lost > 0 ? "!" : ""}
        </text>
      )}
    </g>
  );
}

/** What has happened, in words. */
function Told(props: { film: Film; now: number; quiet: boolean }) {
  const { film, now } = props;
  const past = film.moments.filter((moment) => moment.at <= now).slice(-5);
  const over = film.turns.some((turn) => turn.verdict === "too_many" && decided(turn, film.settings) <= now);
  return (
    <div class="race-told">
      <p class={`race-result ${over ? "wrong" : ""}`}>
        <b>{sayResult(film, now)}</b>
      </p>
      <ol class="small" aria-label="What happened last" aria-live={props.quiet ? "off" : "polite"}>
        {past.map((moment) => (
          <li key={`${moment.at} ${moment.text}`} class={moment.wrong ? "wrong" : ""}>
            <span class="num muted">{sayMs(moment.at)}</span> {moment.text}
          </li>
        ))}
        {past.length === 0 && <li class="muted">Nothing yet: press Next step.</li>}
      </ol>
      <p class="muted small">
        ✓ allowed, × refused, a ring: more than the limit. Numbers: the count that was written; with “!” it
        lacks requests that other servers have allowed.
      </p>
    </div>
  );
}
