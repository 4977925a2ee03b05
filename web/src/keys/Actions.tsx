import { useEffect, useId, useState } from "preact/hooks";
import type { Problem } from "../data/api.ts";
import { partOf } from "../data/regions.ts";
import type { KeyState, Repeat } from "../data/types.ts";
import { Dialog } from "../ui/Dialog.tsx";
import { absolute, count, duration, goSpan } from "../ui/format.ts";
import { Icon } from "../ui/Icon.tsx";
import { KeyView } from "../ui/KeyView.tsx";
import { Time } from "../ui/Time.tsx";
import { say } from "../ui/toast.tsx";
import {
  act,
  ask,
  asked,
  clear,
  type Details,
  describe,
  type Kind,
  kinds,
  name,
  type Target,
  unban,
} from "./actions.ts";

/** The dialogs for keys. Each page with key buttons renders it once. */
export function Actions() {
  const question = asked.value;
  if (!question) return null;
  const { kind, target } = question;
  const id = JSON.stringify(question);
  // Another dialog may have replaced the one that closes.
  const close = () => {
    if (asked.value === question) asked.value = undefined;
  };
  switch (kind) {
    case "peek":
      return <Peek key={id} target={target} onClose={close} />;
    default:
      return <Ask key={id} kind={kind} target={target} onClose={close} />;
  }
}

/** Buttons that open the dialogs for a key. */
export function KeyButtons(props: { target: Target; peek?: boolean }) {
  const { target } = props;
  const icons = { grant: "grant", ban: "ban", reset: "reset", override: undefined } as const;
  const shown: readonly (Kind | "peek")[] = props.peek ? ["peek", "reset", "grant", "ban"] : kinds;
  return (
    <span class="key-buttons">
      {shown.map((kind) => {
        const icon = kind === "peek" ? "search" : icons[kind];
        return (
          <button
            key={kind}
            type="button"
            class={`button small-button ${kind === "ban" ? "danger" : ""}`}
            aria-label={`${verbs[kind]} ${name(target)}`}
            onClick={() => ask(kind, target)}
          >
            {icon && <Icon name={icon} />}
            {verbs[kind]}
          </button>
        );
      })}
    </span>
  );
}

const verbs: Record<Kind | "peek", string> = {
  peek: "Peek",
  reset: "Reset",
  grant: "Grant",
  ban: "Ban",
  override: "Override",
};

function Who(props: { target: Target }) {
  return (
    <p class="who">
      <KeyView value={props.target.key} />
      <span class="muted small">
        rule {props.target.rule}, domain {props.target.domain}
      </span>
    </p>
  );
}

/** The state of a key, with buttons to change it. */
function Peek(props: { target: Target; onClose: () => void }) {
  const { target } = props;
  const [state, setState] = useState<KeyState>();
  const [problem, setProblem] = useState<Problem>();
  const look = () => {
    act("peek", target).then(
      (found) => {
        setState(found);
        setProblem(undefined);
      },
      (error: Problem) => setProblem(error),
    );
  };
  useEffect(look, []);
  return (
    <Dialog title="Key status" onClose={props.onClose}>
      <Who target={target} />
      <div aria-live="polite">
        {problem && (
          <p class="error">
            {problem.absent ? "This server does not allow inspecting keys." : problem.message}
          </p>
        )}
        {!state && !problem && <p class="muted">Loading…</p>}
        {state && <Facts state={state} />}
      </div>
      {state && (
        <div class="dialog-buttons">
          <button type="button" class="button quiet" onClick={look}>
            Refresh
          </button>
          {state.banned_until && (
            <button
              type="button"
              class="button"
              onClick={() => {
                props.onClose();
                void unban(target, state.banned_until);
              }}
            >
              Unban
            </button>
          )}
          {state.override && (
            <button
              type="button"
              class="button"
              onClick={() => {
                props.onClose();
                void clear(target);
              }}
            >
              Remove override
            </button>
          )}
          <KeyButtons target={target} />
        </div>
      )}
    </Dialog>
  );
}

function Facts(props: { state: KeyState }) {
  const { state } = props;
  const r = state.in_regions;
  const limit = partOf(r) ?? state.limit;
  const used = Math.max(0, limit - state.remaining);
  return (
    <>
      <p class={`verdict ${state.allowed ? "allowed" : "refused"}`}>{describe(state)}</p>
      {r && (
        <p class="small">
          {r.home
            ? `Counted in ${r.home} for all regions.`
            : `All regions share ${count(r.limit)}: ${r.parts.map((p) => `${p.region} has ${count(p.limit)}`).join(", ")}, and they give each other what they do not need.`}
        </p>
      )}
      <meter
        class="meter"
        aria-label="Used part of the limit"
        min={0}
        max={Math.max(1, limit)}
        low={Math.max(1, limit) * 0.8}
        high={Math.max(1, limit) - 0.5}
        optimum={0}
        value={Math.min(used, Math.max(1, limit))}
      >
        {used} of {limit}
      </meter>
      <dl class="facts">
        <div>
          <dt>Used</dt>
          <dd class="num">
            {count(used)} of {count(limit)}
          </dd>
        </div>
        <div>
          <dt>Remaining</dt>
          <dd class="num">{count(state.remaining)}</dd>
        </div>
        <div>
          <dt>Fully available again in</dt>
          <dd class="num">{duration(state.reset_after_ms)}</dd>
        </div>
        {state.changed_at && (
          <div>
            <dt>Last changed</dt>
            <dd>
              <Time at={state.changed_at} />
            </dd>
          </div>
        )}
        {state.created_at && (
          <div>
            <dt>Created</dt>
            <dd>
              <Time at={state.created_at} />
            </dd>
          </div>
        )}
        {state.banned_until && (
          <div>
            <dt>Banned until</dt>
            <dd>
              {absolute(Date.parse(state.banned_until))} (<Time at={state.banned_until} />)
            </dd>
          </div>
        )}
        {state.on_repeat && <Repeats repeat={state.on_repeat} />}
        {state.override && (
          <div>
            <dt>Override</dt>
            <dd>
              {state.override.rate}
              {state.override.burst ? `, burst ${count(state.override.burst)}` : ""}
            </dd>
          </div>
        )}
      </dl>
    </>
  );
}

/** What on_repeat has counted about a key. */
function Repeats(props: { repeat: Repeat }) {
  const { refusals, of, within_ms, bans, last_ban, next_ban_ms, mode } = props.repeat;
  const shadow = mode === "shadow";
  return (
    <>
      <div>
        <dt>Refusals in {duration(within_ms)}</dt>
        <dd class="num">
          {count(refusals)} of {count(of)}
        </dd>
      </div>
      <div>
        <dt>{shadow ? "Would have been banned" : "Bans by on_repeat"}</dt>
        <dd>
          {count(bans)}
          {last_ban && (
            <>
              , last <Time at={last_ban} />
            </>
          )}
        </dd>
      </div>
      <div>
        <dt>{shadow ? "Next ban would last" : "Next ban lasts"}</dt>
        <dd class="num">{duration(next_ban_ms)}</dd>
      </div>
    </>
  );
}

const questions: Record<Kind, { title: string; about: string; go: string }> = {
  reset: {
    title: "Reset this key?",
    about: "Clears its usage, so its full limit is available again. This cannot be undone.",
    go: "Reset",
  },
  grant: {
    title: "Grant extra requests?",
    about: "Allows extra requests on top of what remains now. This cannot be undone.",
    go: "Grant",
  },
  ban: {
    title: "Ban this key?",
    about: "All requests of this key that the rule applies to are refused until the ban ends.",
    go: "Ban",
  },
  override: {
    title: "Override the limit of this key?",
    about: "The override replaces the limit of the rule until it ends. Current usage is kept.",
    go: "Override",
  },
};

const spans = [
  ["10m", "10 minutes"],
  ["1h", "1 hour"],
  ["24h", "1 day"],
  ["168h", "7 days"],
  ["", "Custom"],
] as const;

/** A grant lasts one period of the limit by default. */
const onePeriod = "period";

/** Asks for the details of an action, and for confirmation. */
function Ask(props: { kind: Kind; target: Target; onClose: () => void }) {
  const { kind, target } = props;
  const { title, about, go } = questions[kind];
  const form = useForm(kind);
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const send = async () => {
    const details = form.details();
    if (typeof details === "string") {
      setProblem(details);
      return;
    }
    setBusy(true);
    try {
      const state = await act(kind, target, details);
      props.onClose();
      const done = doneToast(kind, target, details, state);
      say(state.warning ? { ...done, text: `${done.text} Warning: ${state.warning}` } : done);
    } catch (error) {
      const failure = error as Problem;
      setProblem(failure.absent ? "This server does not allow changing keys." : failure.message);
      setBusy(false);
    }
  };
  return (
    <Dialog title={title} onClose={props.onClose}>
      <form
        class="ask"
        onSubmit={(event) => {
          event.preventDefault();
          void send();
        }}
      >
        <Who target={target} />
        <p class="muted">{about}</p>
        {form.fields}
        <p class="error" role="alert">
          {problem}
        </p>
        <div class="dialog-buttons">
          <button type="button" class="button" onClick={props.onClose}>
            Cancel
          </button>
          <button
            type="submit"
            class={`button ${kind === "ban" ? "danger-solid" : "primary"}`}
            disabled={busy}
          >
            {go}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** The toast after an action, with its undo function if there is one. */
function doneToast(kind: Kind, target: Target, details: Details, state: KeyState) {
  switch (kind) {
    case "reset":
      return { text: `${name(target)} was reset.` };
    case "grant":
      return { text: `${name(target)} was granted ${count(details.amount ?? 0)} extra requests.` };
    case "ban":
      return {
        text: state.banned_until
          ? `${name(target)} is banned until ${absolute(Date.parse(state.banned_until))}.`
          : `${name(target)} is banned.`,
        undo: () => unban(target),
      };
    case "override":
      return { text: `${name(target)} now has the limit ${details.rate}.`, undo: () => clear(target) };
  }
}

/** The fields of a dialog, and their values: details, or an error message. */
function useForm(kind: Kind) {
  const [amount, setAmount] = useState("10");
  const [span, setSpan] = useState(kind === "grant" ? onePeriod : "1h");
  const [other, setOther] = useState("");
  const [rate, setRate] = useState("");
  const [burst, setBurst] = useState("");
  const [reason, setReason] = useState("");
  const timed = kind !== "reset";
  const details = (): Details | string => {
    const out: Details = {};
    if (kind === "grant") {
      const n = Number(amount);
      if (!Number.isInteger(n) || n < 1) return "Extra requests: enter a whole number, at least 1.";
      out.amount = n;
    }
    if (kind === "override") {
      if (!rate.trim()) return "Rate: enter a rate such as 100/minute or 300/3h.";
      out.rate = rate.trim();
      if (burst.trim()) {
        const n = Number(burst);
        if (!Number.isInteger(n) || n < 1)
          return "Burst: enter a whole number, at least 1, or leave it empty.";
        out.burst = n;
      }
    }
    if (timed && span !== onePeriod) {
      const typed = span || goSpan(other);
      if (!typed) return "Custom duration: enter a duration such as 90m, 36h or 30d.";
      out.for = typed;
    }
    if (reason.trim()) out.reason = reason.trim();
    return out;
  };
  const fields = (
    <div class="ask-fields">
      {kind === "grant" && (
        <Text label="Extra requests" value={amount} onInput={setAmount} inputMode="numeric" focus />
      )}
      {kind === "override" && (
        <>
          <Text label="Rate" value={rate} onInput={setRate} placeholder="100/minute" focus />
          <Text label="Burst (optional)" value={burst} onInput={setBurst} inputMode="numeric" />
        </>
      )}
      {timed && <Span grant={kind === "grant"} value={span} onChange={setSpan} />}
      {timed && span === "" && (
        <Text label="Custom duration" value={other} onInput={setOther} placeholder="36h" />
      )}
      <Text label="Reason (optional)" value={reason} onInput={setReason} wide />
    </div>
  );
  return { details, fields };
}

function Span(props: { grant: boolean; value: string; onChange: (value: string) => void }) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>Duration</label>
      <select
        id={id}
        class="input"
        value={props.value}
        onChange={(e) => props.onChange(e.currentTarget.value)}
      >
        {props.grant && <option value={onePeriod}>One period of the limit</option>}
        {spans.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </div>
  );
}

function Text(props: {
  label: string;
  value: string;
  onInput: (value: string) => void;
  placeholder?: string;
  inputMode?: "numeric";
  wide?: boolean;
  focus?: boolean;
}) {
  const id = useId();
  return (
    <div class={`field ${props.wide ? "wide" : ""}`}>
      <label for={id}>{props.label}</label>
      <input
        id={id}
        class="input"
        value={props.value}
        placeholder={props.placeholder}
        inputMode={props.inputMode}
        autocomplete="off"
        spellcheck={false}
        {...(props.focus ? { autofocus: true } : {})}
        onInput={(e) => props.onInput(e.currentTarget.value)}
      />
    </div>
  );
}
