import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useTokens } from "../shell/palette.ts";
import { clock, count, perSecond, zone } from "../ui/format.ts";
import { heights, type Picture, sumOf, type Token, tokens } from "./chart.ts";

/** Requests per second over time, with a legend that shows totals. */
export function Chart(props: { picture: Picture; span: number; last: number; label: string }) {
  const { picture, span, last } = props;
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const end = useRef(last);
  end.current = last;
  const [at, setAt] = useState<number>();
  const colours = useTokens(tokens);
  const shape = picture.lines.map((line) => `${line.id} ${line.colour}`).join("\n");
  const data = toData(picture);

  useEffect(() => {
    const palette = colours.value;
    if (!box.current || !palette) return;
    const u = new uPlot(
      options(
        picture,
        palette,
        box.current.clientWidth,
        () => [end.current / 1000 - span / 1000, end.current / 1000],
        setAt,
      ),
      data,
      box.current,
    );
    plot.current = u;
    const observer = new ResizeObserver(() => {
      if (box.current) u.setSize({ width: box.current.clientWidth, height });
    });
    observer.observe(box.current);
    return () => {
      observer.disconnect();
      u.destroy();
      plot.current = undefined;
    };
  }, [colours.value, shape, span, picture.stacked]);
  useEffect(() => plot.current?.setData(data), [picture]);

  const seconds = picture.times.length;
  const pointed = at !== undefined && picture.times[at] !== undefined ? at : undefined;
  return (
    <figure class="chart">
      <div ref={box} class="chart-box" role="img" aria-label={props.label} />
      <figcaption>
        <ul class="chart-legend">
          {picture.lines.map((line) => {
            const sum = sumOf(line);
            return (
              <li key={line.id} title={line.id}>
                <i class={`swatch ${line.colour}`} />
                {line.text}{" "}
                <b class="num">{pointed === undefined ? count(sum) : count(line.values[pointed] ?? 0)}</b>
                {pointed === undefined && (
                  <span class="muted num"> {perSecond(seconds > 0 ? sum / seconds : 0)}/s</span>
                )}
              </li>
            );
          })}
        </ul>
        <p class="muted small num chart-at">
          {pointed === undefined
            ? `Total and average per second. Times: ${zone(last)}`
            : `Second ending ${clock(picture.times[pointed]! * 1000)} ${zone(picture.times[pointed]! * 1000)}`}
        </p>
      </figcaption>
    </figure>
  );
}

const height = 250;

// uPlot draws in order, so the top of a stack comes first.
function toData(picture: Picture): uPlot.AlignedData {
  const lines = heights(picture);
  return [picture.times, ...(picture.stacked ? lines.reverse() : lines)];
}

function options(
  picture: Picture,
  palette: Record<Token, string>,
  width: number,
  range: () => [number, number],
  point: (at: number | undefined) => void,
): uPlot.Options {
  const lines = picture.stacked ? [...picture.lines].reverse() : picture.lines;
  const axis = {
    stroke: palette["text-2"],
    grid: { stroke: palette.line, width: 1 },
    ticks: { show: false },
    font: '12px system-ui, -apple-system, "Segoe UI", sans-serif',
  };
  return {
    width,
    height,
    padding: [12, 26, 0, 0], // space for a time label at the right edge
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    scales: {
      x: { range },
      y: { range: (_u, _min, max) => [0, Math.max(5, (max ?? 0) * 1.1)] },
    },
    axes: [
      { ...axis, space: 90, size: 36, gap: 9, values: (_u, at) => at.map((t) => clock(t * 1000)) },
      {
        ...axis,
        size: 58,
        values: (_u, at) => at.map((n) => (Number.isInteger(n) ? `${count(n)}/s` : "")),
      },
    ],
    series: [
      {},
      ...lines.map((line) => ({
        label: line.text,
        stroke: palette[line.colour],
        width: 1.5,
        ...(line.fill ? { fill: palette[line.fill] } : {}),
        // A line needs two points: a single one is drawn as a dot.
        points: { show: (u: uPlot) => u.data[0].length < 3 },
      })),
    ],
    hooks: { setCursor: [(u) => point(u.cursor.idx ?? undefined)] },
  };
}
