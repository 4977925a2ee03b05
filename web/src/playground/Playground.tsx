import { useSignal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import "./playground.css";
import { about, algorithms } from "./algorithms.ts";
import { Compare } from "./Compare.tsx";
import { Controls } from "./Controls.tsx";
import { Axis, Lane, usePalette } from "./Lane.tsx";
import type { Progress } from "./load.ts";
import { Player, sayClock, sayTime } from "./player.ts";
import { Race } from "./Race.tsx";
import { Rule } from "./Rule.tsx";
import { fromHash, type Scene, sceneSettings, scenes, speeds, toHash } from "./settings.ts";
import type { Core } from "./wasm.ts";

/** Loads the WebAssembly, and reports progress. */
export type Load = (progress: Progress) => Promise<Core>;

/** The playground page: introduction, scenarios, player and explanations. */
export function Playground(props: { load: Load }) {
  const [player, setPlayer] = useState<Player>();
  const [failed, setFailed] = useState("");
  const received = useSignal<readonly [number, number]>([0, 0]);
  useEffect(() => {
    const progress: Progress = (bytes, total) => {
      received.value = [bytes, total];
    };
    props.load(progress).then(
      (core) => setPlayer(start(core)),
      (error: unknown) => setFailed(String(error)),
    );
  }, []);
  return (
    <div class="play">
      <header class="intro">
        <h1>Playground</h1>
        <p class="muted">
          Six rate limiting algorithms side by side on the same traffic. The page runs Headgate’s own code,
          compiled to WebAssembly.
        </p>
      </header>
      {player ? <Loaded player={player} /> : <Loading failed={failed} received={received.value} />}
      <Explained />
    </div>
  );
}

/** Starts a player with the settings of the address, playing unless motion is to be reduced. */
export function start(core: Core): Player {
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const player = new Player(core, fromHash(location.hash), calm);
  if (!calm) player.play();
  return player;
}

/** What is shown until the WebAssembly is there. */
export function Loading(props: { failed: string; received: readonly [number, number] }) {
  const [bytes, total] = props.received;
  if (props.failed) {
    return (
      <p class="panel loading error" role="alert">
        The algorithms, as WebAssembly, could not be loaded. {props.failed}
      </p>
    );
  }
  return (
    <div class="panel loading">
      <label for="loading">
        Loading WebAssembly, about 0.6 MB{bytes > 0 ? `: ${Math.round(bytes / 1024)} KiB` : "…"}
      </label>
      <progress id="loading" {...(total > 0 ? { value: bytes, max: total } : {})} />
    </div>
  );
}

function Loaded(props: { player: Player }) {
  const { player } = props;
  const colours = usePalette();
  const { shown } = player.settings.value;
  useLink(player);
  return (
    <>
      <Scenes player={player} />
      <div class="cols">
        <Controls player={player} />
        <section class="stage panel" aria-label="Requests over time">
          <Transport player={player} />
          <Axis player={player} colours={colours} />
          {shown.map((algorithm) => (
            <Lane key={algorithm} player={player} colours={colours} algorithm={algorithm} />
          ))}
          <Legend />
          <p class="hidden" role="status">
            {player.said.value}
          </p>
        </section>
      </div>
      <div class="below">
        <Compare player={player} />
        <Rule player={player} />
      </div>
      <Race core={player.simulation.core} calm={player.calm} />
    </>
  );
}

/** Keeps the address and the settings in sync, in both directions. */
function useLink(player: Player) {
  const link = player.link.value;
  useEffect(() => {
    // Browsers limit how often a page may change its address.
    const timer = setTimeout(() => {
      if (location.hash.replace(/^#/, "") !== link) {
        history.replaceState(null, "", link ? `#${link}` : location.pathname + location.search);
      }
    }, 250);
    return () => clearTimeout(timer);
  }, [link]);
  useEffect(() => {
    const follow = () => {
      const settings = fromHash(location.hash);
      if (toHash(settings) !== player.link.value) player.open(settings);
    };
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
}

function Scenes(props: { player: Player }) {
  const { player } = props;
  const now = (scene: Scene) =>
    toHash({ ...sceneSettings(scene), speed: 1 }) === toHash({ ...player.settings.value, speed: 1 });
  const current = scenes.find(now);
  return (
    <section class="scenes" aria-label="Scenarios">
      <div class="row">
        {scenes.map((scene) => (
          <button
            key={scene.name}
            type="button"
            class="button scene"
            aria-pressed={scene === current}
            onClick={() => {
              player.open(sceneSettings(scene));
              if (!player.calm) player.play();
            }}
          >
            {scene.name}
          </button>
        ))}
      </div>
      <p class="watch">
        {current ? current.watch : "Custom settings. Choose a scenario above to replace them."}
      </p>
    </section>
  );
}

/** Buttons that play, step and send, and the clock. */
export function Transport(props: { player: Player }) {
  const { player } = props;
  const { speed, limit, period } = player.settings.value;
  const running = player.running.value;
  const burst = Math.max(limit, 1);
  void player.beat.value;
  useKeys(player, burst);
  return (
    <div class="transport">
      <div class="row">
        <button
          type="button"
          class={`button ${running || player.calm ? "" : "primary"} wide-button`}
          onClick={() => (running ? player.pause() : player.play())}
        >
          <Icon name={running ? "pause" : "play"} />
          {running ? "Pause" : "Play"}
        </button>
        <button type="button" class={`button ${player.calm ? "primary" : ""}`} onClick={() => player.step()}>
          <Icon name="step" />
          Next request
        </button>
        {(player.calm || !running) && (
          <button type="button" class="button" onClick={() => player.skip(period / 10)}>
            +{sayTime(period / 10)}
          </button>
        )}
        <button type="button" class="button quiet" onClick={() => player.restart()}>
          <Icon name="restart" />
          Restart
        </button>
      </div>
      <div class="row">
        <label class="small muted" for="speed">
          Speed
        </label>
        <select
          id="speed"
          class="input auto"
          value={String(speed)}
          onChange={(e) => player.change({ speed: Number(e.currentTarget.value) })}
        >
          {speeds.map((s) => (
            <option key={s} value={String(s)}>
              {s}×
            </option>
          ))}
        </select>
        <span class="clock num" title="Simulated time">
          <span class="hidden">Simulated time </span>
          {sayClock(player.simulation.now)}
        </span>
        {player.late.value && <span class="badge delayed">running behind</span>}
      </div>
      <div class="row hits">
        <button type="button" class="button primary" onClick={() => player.hit(1)}>
          Send 1
        </button>
        <button type="button" class="button" onClick={() => player.hit(burst)}>
          Send {burst}
        </button>
      </div>
      {player.calm && (
        <p class="small muted wide">
          Reduced motion is on: step with Next request. Play redraws twice per second.
        </p>
      )}
    </div>
  );
}

/** Keyboard shortcuts, active unless the focus is in a field. */
function useKeys(player: Player, burst: number) {
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, select, textarea")) return;
      if (!keys.value) return;
      const actions: Record<string, () => void> = {
        h: () => player.hit(1),
        b: () => player.hit(burst),
        p: () => (player.running.value ? player.pause() : player.play()),
        n: () => player.step(),
        r: () => player.restart(),
      };
      const action = actions[event.key.toLowerCase()];
      if (!action) return;
      event.preventDefault();
      action();
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, [player, burst]);
}

const keys = { value: true };

function Legend() {
  const on = useSignal(keys.value);
  return (
    <div class="legend small">
      <ul>
        <li>
          <i class="mark allowed" /> allowed
        </li>
        <li>
          <i class="mark refused" /> refused
        </li>
        <li>
          <i class="dot" /> wrong compared with an exact log
        </li>
        <li>
          <i class="area" /> usage (dashed: without further requests)
        </li>
        <li>
          <i class="shade" /> last period
        </li>
      </ul>
      <label class="check">
        <input
          type="checkbox"
          checked={on.value}
          onChange={(e) => {
            on.value = e.currentTarget.checked;
            keys.value = on.value;
          }}
        />
        <span>
          Shortcuts: <kbd>h</kbd> send 1, <kbd>b</kbd> send a burst, <kbd>p</kbd> play or pause, <kbd>n</kbd>{" "}
          next request, <kbd>r</kbd> restart
        </span>
      </label>
    </div>
  );
}

function Explained() {
  return (
    <section aria-labelledby="explained" class="explained">
      <h2 id="explained">How the algorithms work</h2>
      <div class="cards">
        {algorithms.map((name) => {
          const { title, how, good, weakness } = about[name];
          return (
            <article key={name} class="panel card" aria-labelledby={`about-${name}`}>
              <h3 id={`about-${name}`}>{title}</h3>
              <p>{how}</p>
              <p>{good}</p>
              <p class="weakness">{weakness}</p>
              <code class="muted">algorithm: {name}</code>
            </article>
          );
        })}
      </div>
    </section>
  );
}

const shapes: Record<string, string> = {
  play: "M4 2.5v11l9-5.5z",
  pause: "M4 2.5h3v11H4zm5 0h3v11H9z",
  step: "M3 2.5v11l7-5.5zm8 0h2.5v11H11z",
  restart: "M8 2.5V0L3.5 3.5 8 7V4.5A4 4 0 1 1 4 8.500H2A6 6 0 1 0 8 2.500z",
};

function Icon(props: { name: keyof typeof shapes }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
      <path d={shapes[props.name]} fill="currentColor" />
    </svg>
  );
}
