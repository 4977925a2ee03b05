import { signal } from "@preact/signals";
import { type Problem, post } from "../data/api.ts";
import type { Key, KeyState } from "../data/types.ts";
import { count, duration, keyText } from "../ui/format.ts";
import { say } from "../ui/toast.tsx";

/** A key of a rule. */
export interface Target {
  domain: string;
  rule: string;
  key: Key;
}

/** What can be done to a key after a question about it. */
export const kinds = ["reset", "grant", "ban", "override"] as const;

export type Kind = (typeof kinds)[number];

/** What is being asked of the reader: to look at a key, or about an action. */
export const asked = signal<{ kind: Kind | "peek"; target: Target } | undefined>(undefined);

/** Changes whenever something was done, so that lists are read again. */
export const done = signal(0);

/** Opens the dialog about a key. */
export const ask = (kind: Kind | "peek", target: Target): void => {
  asked.value = { kind, target };
};

/** Names a key and its rule for people. */
export const name = (t: Target): string => `${keyText(t.key)} (${t.rule})`;

/** What is sent to do something, beside the key. */
export interface Details {
  amount?: number;
  for?: string;
  until?: string;
  rate?: string;
  burst?: number;
  reason?: string;
}

/** Does something to a key. */
export async function act(verb: string, target: Target, details: Details = {}): Promise<KeyState> {
  const state = await post<KeyState>(`/v1/keys/${verb}`, { ...target, ...details });
  done.value++;
  return state;
}

/** Does something to a key, and says how that went. */
export async function tryTo(
  verb: string,
  target: Target,
  details: Details,
  text: string,
  undo?: () => Promise<void>,
): Promise<void> {
  try {
    const { warning } = await act(verb, target, details);
    say({ text: warning ? `${text} But: ${warning}` : text, ...(undo ? { undo } : {}) });
  } catch (error) {
    say({ text: (error as Problem).message, failed: true });
  }
}

/** Lifts a ban. Undoing that bans again until the same time. */
export const unban = (target: Target, until?: string, reason?: string): Promise<void> =>
  tryTo(
    "unban",
    target,
    {},
    `${name(target)} is no longer banned.`,
    until
      ? () =>
          tryTo("ban", target, { until, ...(reason ? { reason } : {}) }, `${name(target)} is banned again.`)
      : undefined,
  );

/** Takes an override back. Undoing that sets it again. */
export const clear = (target: Target, was?: Details): Promise<void> =>
  tryTo(
    "clear",
    target,
    {},
    `The limit of ${name(target)} is that of the rule again.`,
    was ? () => tryTo("override", target, was, `${name(target)} has its own limit again.`) : undefined,
  );

/** Says how a key is now. */
export function describe(state: KeyState): string {
  if (state.banned_until) return "Banned";
  if (state.unlimited) return "May go on: it has no limit";
  if (state.allowed) return `May go on: ${count(state.remaining)} of ${count(state.limit)} left`;
  if (state.retry_after_ms === null) return "Used up, and never refilled";
  return `Used up: the next one passes in ${duration(state.retry_after_ms)}`;
}
