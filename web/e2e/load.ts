/** What may become of a request, as its caller sees it. */
export type Outcome = "allowed" | "refused" | "delayed" | "shadow_banned" | "shadow_refused";

/** What a generator of load was answered: it counts for itself. */
export interface Told {
  requests: number;
  allowed: number;
  refused: number;
  delayed: number;
  shadow_banned: number;
  shadow_refused: number;
  /** Passed with no more than a fifth of the limit left. */
  near: number;
  /** The same by path. */
  byPath: Map<string, Map<Outcome, number>>;
  /** How many of a client's requests with a path did not simply pass. */
  stopped: Map<string, number>;
}

export const nothingYet = (): Told => ({
  requests: 0,
  allowed: 0,
  refused: 0,
  delayed: 0,
  shadow_banned: 0,
  shadow_refused: 0,
  near: 0,
  byPath: new Map(),
  stopped: new Map(),
});

function count<K>(map: Map<K, number>, key: K) {
  map.set(key, (map.get(key) ?? 0) + 1);
}

/** Notes one answer. */
export function note(told: Told, outcome: Outcome, path: string, client: string) {
  told.requests++;
  told[outcome]++;
  if (!told.byPath.has(path)) told.byPath.set(path, new Map());
  count(told.byPath.get(path)!, outcome);
  if (outcome !== "allowed" && outcome !== "delayed") count(told.stopped, `${path} ${client}`);
}

interface Said {
  allowed: boolean;
  limit: number;
  remaining: number;
  action?: string;
  shadow?: string[];
}

function outcomeOf(said: Said): Outcome {
  if (said.action === "delay") return "delayed";
  if (said.action === "shadow_ban") return "shadow_banned";
  if (!said.allowed) return "refused";
  return said.shadow ? "shadow_refused" : "allowed";
}

/** Asks the HTTP API about requests with these attributes, so many at a time. */
export async function ask(
  api: string,
  requests: readonly Record<string, string>[],
  atOnce = 16,
  told = nothingYet(),
): Promise<Told> {
  const left = [...requests];
  const work = async () => {
    for (let attributes = left.pop(); attributes; attributes = left.pop()) {
      const response = await fetch(`${api}/v1/check`, {
        method: "POST",
        body: JSON.stringify({ domain: "api", attributes }),
      });
      const said = (await response.json()) as Said;
      const outcome = outcomeOf(said);
      note(told, outcome, attributes.path ?? "", attributes.client_ip ?? "");
      const passed = outcome === "allowed" || outcome === "delayed";
      // A rule that only counts tells nobody what is left.
      if (passed && said.limit > 0 && said.remaining * 5 <= said.limit) told.near++;
    }
  };
  await Promise.all(Array.from({ length: atOnce }, work));
  return told;
}
