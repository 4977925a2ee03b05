import { signal } from "@preact/signals";
import { type Problem, post } from "../data/api.ts";
import { partOf } from "../data/regions.ts";
import type { Key, KeyState } from "../data/types.ts";
import { count, duration, keyText } from "../ui/format.ts";
import { say } from "../ui/toast.tsx";

/** A key of a rule. */
export interface Target {
  domain: string;
  rule: string;
  key: Key;
}

/** The actions on a key that ask for confirmation. */
export const kinds = ["reset", "grant", "ban", "override"] as const;

export type Kind = (typeof kinds)[number];

/** What a dialog can be about: an action, or the state of a key. */
export type Question = Kind | "peek";

/** The open dialog. */
export const asked = signal<{ kind: Question; target: Target } | undefined>(undefined);

/** Changes after every action, so that lists are loaded again. */
export const done = signal(0);

/** Opens a dialog for a key. */
export const ask = (kind: Question, target: Target): void => {
  asked.value = { kind, target };
};

/** Formats a key and its rule as text. */
export const name = (t: Target): string => `${keyText(t.key)} (${t.rule})`;

/** The parameters of an action in addition to the key. */
export interface Details {
  amount?: number;
  for?: string;
  until?: string;
  rate?: string;
  burst?: number;
  reason?: string;
}

/** Runs an action on a key. */
export async function act(verb: string, target: Target, details: Details = {}): Promise<KeyState> {
  const state = await post<KeyState>(`/v1/keys/${verb}`, { ...target, ...details });
  done.value++;
  return state;
}

/** Runs an action on a key, and shows the result as a toast. */
export async function tryTo(
  verb: string,
  target: Target,
  details: Details,
  text: string,
  undo?: () => Promise<void>,
): Promise<void> {
  try {
    const { warning } = await act(verb, target, details);
    say({ text: warning ? `${text} Warning: ${warning}` : text, ...(undo ? { undo } : {}) });
  } catch (error) {
    say({ text: (error as Problem).message, failed: true });
  }
}

/** Lifts a ban. Undo bans the key again until the same time. */
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

/** Removes an override. Undo sets it again. */
export const clear = (target: Target, was?: Details): Promise<void> =>
  tryTo(
    "clear",
    target,
    {},
    `The override of ${name(target)} was removed.`,
    was ? () => tryTo("override", target, was, `The override of ${name(target)} was restored.`) : undefined,
  );

/** Describes the state of a key. */
export function describe(state: KeyState): string {
  if (state.banned_until) return "Banned";
  if (state.unlimited) return "Allowed: no limit";
  const part = partOf(state.in_regions);
  const where = part === undefined ? "" : ` in ${state.in_regions?.region}`;
  if (state.allowed)
    return `Allowed: ${count(state.remaining)} of ${count(part ?? state.limit)} remaining${where}`;
  if (state.retry_after_ms === null) return "Limit reached: it never resets";
  return `Limit reached: available again in ${duration(state.retry_after_ms)}`;
}
