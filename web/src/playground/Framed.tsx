import { useEffect, useState } from "preact/hooks";
import "../styles/base.css";
import "../styles/controls.css";
import "./playground.css";
import "./framed.css";
import { Axis, Lane, usePalette } from "./Lane.tsx";
import { type Load, Loading, start, Transport } from "./Playground.tsx";
import type { Player } from "./player.ts";
import { type Scene, type Settings, sceneSettings, scenes, toHash } from "./settings.ts";

/** The playground inside another page: scenarios, player and lanes, without explanations. */
export function Framed(props: { load: Load }) {
  const [player, setPlayer] = useState<Player>();
  const [failed, setFailed] = useState("");
  useEffect(() => {
    props
      .load(() => {})
      .then(
        (core) => setPlayer(start(core)),
        (error: unknown) => setFailed(String(error)),
      );
  }, []);
  return (
    <main class="play framed">
      <h1 class="hidden">Playground</h1>
      {player ? <Played player={player} /> : <Loading failed={failed} received={[0, 0]} />}
    </main>
  );
}

/**
 * The settings of a scenario with two lanes, because a frame is not as tall as a page:
 * the first algorithm and, if it is one of the scenario's, the exact log.
 */
function briefly(scene: Scene): Settings {
  const settings = sceneSettings(scene);
  const [first, second] = settings.shown;
  const other = settings.shown.includes("sliding_log") ? "sliding_log" : second;
  return { ...settings, shown: settings.shown.filter((name) => name === first || name === other) };
}

/** The scenarios to choose from, and what to watch in the chosen one. */
function Choices(props: { player: Player }) {
  const { player } = props;
  const same = (scene: Scene) => toHash(briefly(scene)) === toHash(player.settings.value);
  const chosen = scenes.find(same);
  return (
    <section class="scenes" aria-label="Scenarios">
      <div class="row">
        {scenes.map((scene) => (
          <button
            key={scene.name}
            type="button"
            class="button scene"
            aria-pressed={scene === chosen}
            onClick={() => {
              player.open(briefly(scene));
              if (!player.calm) player.play();
            }}
          >
            {scene.name}
          </button>
        ))}
      </div>
      <p class="watch">{chosen?.watch}</p>
    </section>
  );
}

function Played(props: { player: Player }) {
  const { player } = props;
  const colours = usePalette();
  return (
    <>
      <Choices player={player} />
      <section class="stage panel" aria-labelledby="stage">
        <h2 class="hidden" id="stage">
          Requests over time
        </h2>
        <Transport player={player} />
        <Axis player={player} colours={colours} />
        {player.settings.value.shown.map((algorithm) => (
          <Lane key={algorithm} player={player} colours={colours} algorithm={algorithm} />
        ))}
        <p class="legend small">
          <a href={`./index.html#${player.link.value}`} target="_top">
            Change limit, traffic and algorithms
          </a>
        </p>
        <p class="hidden" role="status">
          {player.said.value}
        </p>
      </section>
    </>
  );
}
