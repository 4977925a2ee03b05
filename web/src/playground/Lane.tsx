import { useSignal, useSignalEffect } from "@preact/signals";
import { useEffect, useId, useRef } from "preact/hooks";
import { useTokens } from "../shell/palette.ts";
import { type Algorithm, about, algorithms } from "./algorithms.ts";
import { drawAxis, drawLane, type Palette, tokens } from "./draw.ts";
import { type Player, sayTime } from "./player.ts";

/** The colours of the theme, updated when it changes. */
export const usePalette = () => useTokens(tokens);

type Colours = ReturnType<typeof usePalette>;

/** A canvas that is redrawn for every frame and on resize. */
function Picture(props: {
  player: Player;
  colours: Colours;
  class: string;
  label?: string;
  draw: (canvas: HTMLCanvasElement, colours: Palette) => void;
}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const size = useSignal(0);
  const draw = useRef(props.draw);
  draw.current = props.draw;
  useEffect(() => {
    const observer = new ResizeObserver(() => {
      size.value++;
    });
    observer.observe(canvas.current!);
    return () => observer.disconnect();
  }, []);
  useSignalEffect(() => {
    // Reading the signals subscribes to them.
    void props.player.frame.value;
    void size.value;
    if (canvas.current && props.colours.value) draw.current(canvas.current, props.colours.value);
  });
  return props.label ? (
    <canvas ref={canvas} class={props.class} role="img" aria-label={props.label} />
  ) : (
    <div aria-hidden="true">
      <canvas ref={canvas} class={props.class} />
    </div>
  );
}

/** The time axis above the lanes. */
export function Axis(props: { player: Player; colours: Colours }) {
  const { player, colours } = props;
  return (
    <Picture
      player={player}
      colours={colours}
      class="axis"
      draw={(canvas, palette) => drawAxis(canvas, player.simulation, palette)}
    />
  );
}

/** One algorithm: its current answer, its counts and its chart. */
export function Lane(props: { player: Player; colours: Colours; algorithm: Algorithm }) {
  const { player, colours, algorithm } = props;
  const id = useId();
  void player.beat.value;
  const look = player.simulation.look(algorithm);
  const error = player.simulation.errors[algorithms.indexOf(algorithm)];
  const { title, shows } = about[algorithm];
  return (
    <article class="lane" aria-labelledby={id}>
      <header class="lane-head">
        <h3 id={id}>{title}</h3>
        <span class="lane-shows">{shows}</span>
        <span class="lane-now num">
          <Now look={look} leaky={algorithm === "leaky_bucket"} />
        </span>
        <span class="lane-count num">
          <span class="count-allowed">
            <b>{look.allowed}</b> allowed
          </span>
          <span class="count-refused">
            <b>{look.refused}</b> refused
          </span>
        </span>
      </header>
      {error && <p class="error lane-error">{error}</p>}
      <Picture
        player={player}
        colours={colours}
        class="lane-picture"
        label={`${title}: requests and state over time. The table below has the numbers.`}
        draw={(canvas, palette) =>
          drawLane(canvas, player.simulation, algorithm, player.simulation.look(algorithm), palette)
        }
      />
    </article>
  );
}

function Now(props: { look: { retryAfter: number; remaining: number; delay: number }; leaky: boolean }) {
  const { retryAfter, remaining, delay } = props.look;
  if (retryAfter < 0) return <span class="badge refused">never allowed</span>;
  if (retryAfter > 0) return <span class="badge refused">retry after {sayTime(retryAfter)}</span>;
  if (props.leaky && delay > 0) return <span class="badge delayed">delayed by {sayTime(delay)}</span>;
  return <span class="badge allowed">{remaining} remaining</span>;
}
