import type { ComponentChildren } from "preact";
import { useId, useState } from "preact/hooks";
import { Choice } from "../ui/Choice.tsx";
import { type Algorithm, about, algorithms } from "./algorithms.ts";
import type { Player } from "./player.ts";
import { fields, formatDuration, type Settings } from "./settings.ts";
import type { Kind } from "./streams.ts";

type Change = (some: Partial<Settings>) => void;

/** A field of the form, with its label and an error message. */
function Field<K extends keyof Settings>(props: {
  name: K;
  label: string;
  hint: string;
  settings: Settings;
  change: Change;
  /** The text of the value, if it differs from the one in a link. */
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

const durations = new Set<keyof Settings>(["period", "every", "spread", "maxWait", "refillEvery"]);

// Fields that may be empty, and the value of an empty field.
const empty: Partial<Record<keyof Settings, string>> = {
  burst: "0",
  delayAfter: "0",
  maxWait: "0s",
  refillEvery: "0s",
};

function read<K extends keyof Settings>(name: K, text: string): Settings[K] | undefined {
  return fields[name].read(text.trim() || (empty[name] ?? ""));
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
  ["poisson", "Random (Poisson)"],
  ["steady", "Steady"],
  ["bursts", "Bursts"],
  ["boundary", "Window boundary attack"],
  ["none", "None: send by hand"],
];

/** The limit and the traffic. Changes apply at once, and usage is kept. */
export function Controls(props: { player: Player }) {
  const { player } = props;
  const settings = player.settings.value;
  const change: Change = (some) => player.change(some);
  const same = { settings, change };
  const { kind } = settings;
  // Options of algorithms that are not shown are hidden.
  const has = (...names: Algorithm[]) => names.some((name) => settings.shown.includes(name));
  return (
    <div class="controls panel">
      <Shown settings={settings} change={change} />
      <Group title="Limit">
        <Field name="limit" label="Limit" hint="Enter a whole number from 0 to 10,000" {...same} />
        <Field name="period" label="Period" hint="Such as 10s, 1m or 500ms; at most 24h" {...same} />
        {has("token_bucket", "leaky_bucket") && (
          <Field
            name="burst"
            label="Burst (buckets)"
            hint="Enter a whole number up to 10,000; empty: same as the limit"
            text={settings.burst === 0 ? "" : String(settings.burst)}
            placeholder={`${settings.limit} (same as the limit)`}
            wide
            {...same}
          />
        )}
        {has("token_bucket") && (
          <Field
            name="refillEvery"
            label="Refill every (token bucket)"
            hint="Such as 1s or 10s; empty: continuously"
            text={settings.refillEvery === 0 ? "" : formatDuration(settings.refillEvery)}
            placeholder="continuously"
            wide
            {...same}
          />
        )}
        {has("leaky_bucket") && (
          <>
            <Field
              name="delayAfter"
              label="Delay after"
              hint="Enter a whole number, at most the burst; empty: 1"
              text={settings.delayAfter === 0 ? "" : String(settings.delayAfter)}
              placeholder="1"
              {...same}
            />
            <Field
              name="maxWait"
              label="Maximum wait"
              hint="Such as 700ms or 2s; empty: no limit"
              text={settings.maxWait === 0 ? "" : formatDuration(settings.maxWait)}
              placeholder="no limit"
              {...same}
            />
          </>
        )}
        {has("fixed_window") && (
          <Choice
            label="Fixed windows start"
            value={settings.anchor}
            options={[
              ["clock", "on the clock"],
              ["first_request", "at the first request"],
            ]}
            onChange={(anchor) => change({ anchor })}
            wide
          />
        )}
        {has("sliding_buckets") && (
          <>
            <Field name="buckets" label="Sub-windows" hint="Enter a whole number from 1 to 512" {...same} />
            <Choice
              label="Oldest counts"
              value={settings.edge}
              options={[
                ["weighted", "in part"],
                ["lenient", "not at all"],
                ["strict", "in full"],
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
            Sliding log counts refusals
          </label>
        )}
      </Group>
      <Group title="Traffic">
        <div class="wide">
          <Choice
            label="Pattern"
            value={kind}
            options={kindNames}
            onChange={(next) => change({ kind: next })}
          />
        </div>
        {(kind === "steady" || kind === "poisson") && (
          <Field name="rate" label="Per second" hint="Enter a number from 0.01 to 1,000" {...same} />
        )}
        {kind === "bursts" && (
          <>
            <Field name="size" label="Burst size" hint="Enter a whole number from 1 to 1,000" {...same} />
            <Field name="every" label="Burst interval" hint="Such as 10s or 1m" {...same} />
            <Field name="spread" label="Burst duration" hint="Such as 0s, 1s or 200ms" {...same} />
          </>
        )}
        <Field name="cost" label="Cost per request" hint="Enter a whole number from 1 to 1,000" {...same} />
        {kind === "poisson" && (
          <Field
            name="seed"
            label="Seed"
            hint="Enter a whole number; a seed always gives the same traffic"
            {...same}
          />
        )}
        {kind === "boundary" && (
          <p class="wide muted small">
            {settings.limit} requests just before the end of every second window, and {settings.limit} just
            after. Windows last {formatDuration(settings.period)}.
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
      <legend>Algorithms</legend>
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
