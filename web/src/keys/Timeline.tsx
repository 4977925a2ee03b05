import { useEffect, useRef, useState } from "preact/hooks";
import { type Problem, post } from "../data/api.ts";
import { Stream } from "../data/stream.ts";
import type { Timeline } from "../data/types.ts";
import { Segments } from "../shell/Segments.tsx";
import { Dialog } from "../ui/Dialog.tsx";
import { clock, count, zone } from "../ui/format.ts";
import { KeyView } from "../ui/KeyView.tsx";
import { say } from "../ui/toast.tsx";
import { done, name, type Target } from "./actions.ts";
import { askFrom, type Bin, bins, ceiling, inWords, levelPath, merge, sum } from "./timeline.ts";
import "./timeline.css";

const spans = [
  { value: "300", text: "5 min" },
  { value: "900", text: "15 min" },
  { value: "3600", text: "1 hour" },
] as const;

type Span = (typeof spans)[number]["value"];

/** Follows a key, and shows its last hour as it goes on. */
export function TimelineDialog(props: { target: Target; onClose: () => void }) {
  const { target, onClose } = props;
  const { timeline, problem } = useTimeline(target);
  const [span, setSpan] = useState<Span>("300");
  const stop = async () => {
    try {
      await post("/v1/timeline/stop", target);
      say({ text: `${name(target)} is no longer followed.` });
      done.value++;
      onClose();
    } catch (error) {
      say({ text: (error as Problem).message, failed: true });
    }
  };
  return (
    <Dialog title="Last hour" onClose={onClose} wide>
      <div class="timeline-head">
        <p class="who">
          <KeyView value={target.key} />
          <span class="muted small">
            rule {target.rule}, domain {target.domain}
          </span>
        </p>
        <Segments legend="Time shown" value={span} options={spans} onChange={setSpan} />
      </div>
      {problem && (
        <p class="error" role="alert">
          {problem.absent ? "This server cannot follow keys." : problem.message}
        </p>
      )}
      {!timeline && !problem && <p class="muted">Loading…</p>}
      {timeline && <Picture timeline={timeline} span={Number(span)} />}
      <div class="dialog-buttons">
        {timeline && (
          <button type="button" class="button" onClick={stop}>
            Stop following
          </button>
        )}
        <button type="button" class="button primary" onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  );
}

/** Follows a key and reads its timeline with every tick of the live stream. */
function useTimeline(target: Target): { timeline: Timeline | undefined; problem: Problem | undefined } {
  const [timeline, setTimeline] = useState<Timeline>();
  const [problem, setProblem] = useState<Problem>();
  const known = useRef<Timeline | undefined>(undefined);
  const asking = useRef(false);
  useEffect(() => {
    let ended = false;
    const read = async () => {
      if (asking.current || ended) return;
      asking.current = true;
      try {
        const from = askFrom(known.current);
        const heard = await post<Timeline>(`/v1/timeline?from=${from}`, target);
        if (ended) return;
        known.current = merge(known.current, from, heard);
        setTimeline(known.current);
        setProblem(undefined);
      } catch (error) {
        if (!ended) setProblem(error as Problem);
      } finally {
        asking.current = false;
      }
    };
    const live = new Stream("./v1/live", { hello: read, tick: read }, 6000);
    post("/v1/timeline/follow", target).then(
      () => {
        done.value++;
        if (!ended) live.open();
      },
      (error: Problem) => setProblem(error),
    );
    return () => {
      ended = true;
      live.close();
    };
  }, []);
  return { timeline, problem };
}

// The places of the picture's parts, in pixels; its width is that of the dialog.
const left = 46;
const right = 8;
const requests = { top: 14, height: 120 };
const level = { top: 164, height: 70 };
const height = 262;

function Picture(props: { timeline: Timeline; span: number }) {
  const { timeline, span } = props;
  const all = bins(timeline, span);
  const total = sum(all);
  const box = useRef<HTMLElement>(null);
  const [width, setWidth] = useState(640);
  useEffect(() => {
    if (!box.current) return;
    const observer = new ResizeObserver(
      ([entry]) => entry && setWidth(Math.max(200, entry.contentRect.width)),
    );
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const step = (width - left - right) / all.length;
  const x = (i: number) => Math.round((left + i * step) * 100) / 100;
  const size = span / all.length;
  return (
    <figure class="timeline" ref={box}>
      <svg width={width} height={height} role="img" aria-label={inWords(total, timeline.limit, span / 60)}>
        <Requests all={all} x={x} width={width} step={step} size={size} />
        <Level all={all} x={x} width={width} limit={timeline.limit} />
        {[0, 0.5, 1].map((part) => (
          <text
            key={part}
            x={left + part * (width - left - right)}
            y={height - 8}
            text-anchor={part === 0 ? "start" : part === 1 ? "end" : "middle"}
          >
            {clock((all[0]!.from + part * span) * 1000)}
          </text>
        ))}
      </svg>
      <figcaption>
        <dl class="timeline-facts">
          <Fact swatch="allowed" term="Allowed" value={count(total.allowed)} />
          <Fact swatch="refused" term="Refused" value={count(total.refused)} />
          <Fact swatch="level" term="Least left" value={total.low === null ? "–" : count(total.low)} />
          <Fact term="Cost" value={count(total.cost)} />
        </dl>
        <p class="muted small">
          Followed since {clock(timeline.since * 1000)} {zone(timeline.since * 1000)}, on this server only.
          Each bar is {size} seconds.
        </p>
      </figcaption>
    </figure>
  );
}

function Fact(props: { swatch?: string; term: string; value: string }) {
  return (
    <div>
      <dt>
        {props.swatch && <i class={`timeline-swatch ${props.swatch}`} />}
        {props.term}
      </dt>
      <dd class="num">{props.value}</dd>
    </div>
  );
}

/** Bars: allowed below, refused on top of them. */
function Requests(props: {
  all: readonly Bin[];
  x: (i: number) => number;
  width: number;
  step: number;
  size: number;
}) {
  const { all, x, step } = props;
  const top = ceiling(Math.max(...all.map((b) => b.allowed + b.refused)));
  const tall = (n: number) => (n / top) * requests.height;
  const base = requests.top + requests.height;
  return (
    <g>
      <Frame {...requests} width={props.width} top-label={count(top)} title={`Requests in ${props.size} s`} />
      {all.map((b, i) => (
        <g key={b.from}>
          <title>{`${clock(b.from * 1000)}: ${count(b.allowed)} allowed, ${count(b.refused)} refused`}</title>
          <rect class="hit" x={x(i)} y={requests.top} width={step} height={requests.height} />
          {b.allowed > 0 && (
            <rect
              class="allowed"
              x={x(i) + 0.5}
              y={base - tall(b.allowed)}
              width={step - 1}
              height={tall(b.allowed)}
            />
          )}
          {b.refused > 0 && (
            <rect
              class="refused"
              x={x(i) + 0.5}
              y={base - tall(b.allowed + b.refused)}
              width={step - 1}
              height={tall(b.refused)}
            />
          )}
        </g>
      ))}
    </g>
  );
}

/** The least that remained. */
function Level(props: { all: readonly Bin[]; x: (i: number) => number; width: number; limit: number }) {
  const top = Math.max(1, props.limit, ...props.all.map((b) => b.low ?? 0));
  const y = (n: number) => Math.round((level.top + level.height * (1 - n / top)) * 100) / 100;
  return (
    <g>
      <Frame {...level} width={props.width} top-label={count(top)} title="Left of the limit" />
      <path class="level" d={levelPath(props.all, props.x, y)} />
    </g>
  );
}

function Frame(props: { width: number; top: number; height: number; "top-label": string; title: string }) {
  const base = props.top + props.height;
  return (
    <g>
      <line class="grid" x1={left} x2={props.width - right} y1={props.top} y2={props.top} />
      <line class="grid" x1={left} x2={props.width - right} y1={base} y2={base} />
      <text x={left - 6} y={props.top + 4} text-anchor="end">
        {props["top-label"]}
      </text>
      <text x={left - 6} y={base + 4} text-anchor="end">
        0
      </text>
      <text class="title" x={left + 4} y={props.top - 4}>
        {props.title}
      </text>
    </g>
  );
}
