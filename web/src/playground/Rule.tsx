import { useSignal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { type Algorithm, about } from "./algorithms.ts";
import type { Player } from "./player.ts";
import { toYAML } from "./settings.ts";

/** A button that copies a text and confirms it. */
function Copy(props: { text: () => string; children: string }) {
  const done = useSignal("");
  useEffect(() => {
    if (!done.value) return;
    const timer = setTimeout(() => {
      done.value = "";
    }, 2000);
    return () => clearTimeout(timer);
  }, [done.value]);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(props.text());
      done.value = "Copied";
    } catch {
      done.value = "The browser blocked copying";
    }
  };
  return (
    <>
      <button type="button" class="button" onClick={copy}>
        {props.children}
      </button>
      <span class="small muted" role="status">
        {done.value}
      </span>
    </>
  );
}

/** The chosen limit as a rule, and the settings as a link. */
export function Rule(props: { player: Player }) {
  const { player } = props;
  const settings = player.settings.value;
  const [chosen, choose] = useState<Algorithm>();
  const algorithm = chosen && settings.shown.includes(chosen) ? chosen : settings.shown[0]!;
  const yaml = toYAML(settings, algorithm);
  return (
    <section class="panel rule" aria-labelledby="rule">
      <div class="section-head">
        <h2 id="rule">Use this limit</h2>
        <div class="row">
          <label class="small muted" for="rule-algorithm">
            Rule for
          </label>
          <select
            id="rule-algorithm"
            class="input auto"
            value={algorithm}
            onChange={(e) => choose(e.currentTarget.value as Algorithm)}
          >
            {settings.shown.map((name) => (
              <option key={name} value={name}>
                {about[name].title}
              </option>
            ))}
          </select>
        </div>
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard */}
      <section class="code" tabIndex={0} aria-label="The rule as YAML">
        <pre>
          <code>{yaml}</code>
        </pre>
      </section>
      <div class="row">
        <Copy text={() => yaml}>Copy rule</Copy>
        <Copy text={() => `${location.href.replace(/#.*/, "")}#${player.link.value}`}>Copy link</Copy>
      </div>
    </section>
  );
}
