import type { Change } from "../data/types.ts";

/** The newest change of each key that on_repeat would have banned, newest first. */
export function newest(changes: readonly Change[]): Change[] {
  const seen = new Set<string>();
  return changes.filter((c) => {
    const id = JSON.stringify([c.domain, c.rule, c.key, c.key_hash]);
    if (c.action !== "would_ban" || seen.has(id)) return false;
    seen.add(id);
    return true;
  });
}
