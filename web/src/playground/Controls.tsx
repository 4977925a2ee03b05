import type { ComponentChildren } from "preact";
import { useId, useState } from "preact/hooks";
import { type Algorithm, about, algorithms } from "./algorithms.ts";
import type { Player } from "./player.ts";
import { fields, formatDuration, type Settings } from "./settings.ts";
import type { Kind } from "./streams.ts";

type Change = (some: Partial<Settings>) => void;

/** A field of the form: what it is called, and what is wrong with its text. */
function Field<K extends keyof Settings>(props: {
  name: K;
  label: string;
  hint: string;
  settings: Settings;
  change: Change;
  /** How the value is written where it is not as in a link. */
  text?: string;
  placeholder?: string;
  wide?: boolean;
}) {
  const { name, settings, change } = props;
  const id = useId();
  const shown = props.text ?? fields[name].write(settings[name]);
  const [draft, setDraft] = useState<string>();
  const text = draft ?? shown;
  const value = read(name, text);
  const wrong = value === undefined;
  return (
    <div class={`field ${props.wide ? "wide" : ""}`}>
      <label for={id}>{props.label}</label>
      <input
        id={id}
        class="input"
        placeholder={props.placeholder}
        value={text}
        spellcheck={false}
        autocomplete="off"
        inputMode={typeof settings[name] === "number" && !durations.has(name) ? "decimal" : "text"}
        aria-invalid={wrong}
        aria-describedby={wrong ? `${id}-wrong` : undefined}
        onInput={(event) => {
          const next = event.currentTarget.value;
          setDraft(next);
          const parsed = read(name, next);
          if (parsed !== undefined) change({ [name]: parsed } as Partial<Settings>);
        }}
        onBlur={() => setDraft(undefined)}
      />
      {wrong && (
        <p class="error" id={`${id}-wrong`}>
          {props.hint}
        </p>
      )}
    </div>
  );
}

const durations = new Set<keyof Settings>(["period", "every", "spread", "maxWait"]);

// What may be left empty, and what it then is: a burst as much as the limit, a
// queue as the algorithm has it.
const empty: Partial<Record<keyof Settings, string>> = { burst: "0", delayAfter: "0", maxWait: "0s" };

function read<K extends keyof Settings>(name: K, text: string): Settings[K] | undefined {
  return fields[name].read(text.trim() || (empty[name] ?? ""));
}

function Choice<T extends string>(props: {
  label: string;
  value: T;
  options: readonly (readonly [T, string])[];
  onChange: (value: T) => void;
  wide?: boolean;
}) {
  const id = useId();
  return (
    <div class={`field ${props.wide ? "wide" : ""}`}>
      <label for={id}>{props.label}</label>
      <select
        id={id}
        class="input"
        value={props.value}
        onChange={(e) => props.onChange(e.currentTarget.value as T)}
      >
        {props.options.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </div>
  );
}

function Group(props: { title: string; children: ComponentChildren }) {
  const id = useId();
  return (
    <section class="group" aria-labelledby={id}>
      <h2 id={id}>{props.title}</h2>
      <div class="group-fields">{props.children}</div>
    </section>
  );
}

const kindNames: readonly (readonly [Kind, string])[] = [
  ["poisson", "At random (Poisson)"],
  ["steady", "Steady"],
  ["bursts", "Bursts"],
  ["boundary", "Attack on the edge"],
  ["none", "None: only what you send"],
];

/** The limit and the traffic. What changes holds at once, and use is kept. */
export function Controls(props: { player: Player }) {
  const { player } = props;
  const settings = player.settings.value;
  const change: Change = (some) => player.change(some);
  const same = { settings, change };
  const { kind } = settings;
  // Options of algorithms that are not shown would change nothing in view.
  const has = (...names: Algorithm[]) => names.some((name) => settings.shown.includes(name));
  return (
    <div class="controls panel">
      <Shown settings={settings} change={change} />
      <Group title="Limit">
        <Field name="limit" label="Limit" hint="A whole number from 0 to 10,000" {...same} />
        <Field name="period" label="per period" hint="Such as 10s, 1m or 500ms, at most a day" {...same} />
        {has("token_bucket", "leaky_bucket") && (
          <Field
            name="burst"
            label="Burst of buckets"
            hint="A whole number up to 10,000; empty: as the limit"
            text={settings.burst === 0 ? "" : String(settings.burst)}
            placeholder={`as the limit: ${settings.limit}`}
            wide
            {...same}
          />
        )}
        {has("leaky_bucket") && (
          <>
            <Field
              name="delayAfter"
              label="Queue: served at once"
              hint="A whole number, at most the burst; empty: 1"
              text={settings.delayAfter === 0 ? "" : String(settings.delayAfter)}
              placeholder="1"
              {...same}
            />
            <Field
              name="maxWait"
              label="longest wait"
              hint="Such as 700ms or 2s; empty: the whole queue"
              text={settings.maxWait === 0 ? "" : formatDuration(settings.maxWait)}
              placeholder="no bound"
              {...same}
            />
          </>
        )}
        {has("fixed_window") && (
          <Choice
            label="Fixed windows begin"
            value={settings.anchor}
            options={[
              ["clock", "on the clock"],
              ["first_request", "with the first request"],
            ]}
            onChange={(anchor) => change({ anchor })}
            wide
          />
        )}
        {has("sliding_buckets") && (
          <>
            <Field name="buckets" label="Sub-windows" hint="A whole number from 1 to 512" {...same} />
            <Choice
              label="Oldest one is"
              value={settings.edge}
              options={[
                ["weighted", "weighted"],
                ["lenient", "left out"],
                ["strict", "whole"],
              ]}
              onChange={(edge) => change({ edge })}
            />
          </>
        )}
        {has("sliding_log") && (
          <label class="check wide">
            <input
              type="checkbox"
              checked={settings.countDenied}
              onChange={(e) => change({ countDenied: e.currentTarget.checked })}
            />
            The log counts refusals too
          </label>
        )}
      </Group>
      <Group title="Traffic">
        <div class="wide">
          <Choice
            label="Requests come"
            value={kind}
            options={kindNames}
            onChange={(next) => change({ kind: next })}
          />
        </div>
        {(kind === "steady" || kind === "poisson") && (
          <Field name="rate" label="Per second" hint="From 0.01 to 1,000" {...same} />
        )}
        {kind === "bursts" && (
          <>
            <Field name="size" label="Requests a burst" hint="A whole number from 1 to 1,000" {...same} />
            <Field name="every" label="A burst every" hint="Such as 10s or 1m" {...same} />
            <Field name="spread" label="spread over" hint="Such as 0s, 1s or 200ms" {...same} />
          </>
        )}
        <Field name="cost" label="Cost of each" hint="A whole number from 1 to 1,000" {...same} />
        {kind === "poisson" && (
          <Field name="seed" label="Seed" hint="A whole number: the same gives the same traffic" {...same} />
        )}
        {kind === "boundary" && (
          <p class="wide muted small">
            {settings.limit} just before every other {formatDuration(settings.period)} of the clock,{" "}
            {settings.limit} just after.
          </p>
        )}
      </Group>
    </div>
  );
}

function Shown(props: { settings: Settings; change: Change }) {
  const { shown } = props.settings;
  const toggle = (name: Algorithm) => {
    const next = algorithms.filter((a) => (a === name ? !shown.includes(a) : shown.includes(a)));
    if (next.length > 0) props.change({ shown: next });
  };
  return (
    <fieldset class="group shown">
      <legend>Side by side</legend>
      <div class="shown-list">
        {algorithms.map((name) => (
          <label key={name} class="check">
            <input
              type="checkbox"
              checked={shown.includes(name)}
              disabled={shown.length === 1 && shown.includes(name)}
              onChange={() => toggle(name)}
            />
            {about[name].title}
          </label>
        ))}
      </div>
    </fieldset>
  );
}
