/** The outcome of a request, as its caller sees it. */
export type Outcome = "allowed" | "refused" | "delayed" | "shadow_banned" | "shadow_refused";

/** The answers that a load generator received. */
export interface Tally {
  requests: number;
  allowed: number;
  refused: number;
  delayed: number;
  shadow_banned: number;
  shadow_refused: number;
  /** Allowed with 20% of the limit or less remaining. */
  near: number;
  /** Outcomes by path. */
  byPath: Map<string, Map<Outcome, number>>;
  /** Requests that were not simply allowed, by path and client. */
  stopped: Map<string, number>;
}

export const emptyTally = (): Tally => ({
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

/** Records one answer. */
export function note(tally: Tally, outcome: Outcome, path: string, client: string) {
  tally.requests++;
  tally[outcome]++;
  if (!tally.byPath.has(path)) tally.byPath.set(path, new Map());
  count(tally.byPath.get(path)!, outcome);
  if (outcome !== "allowed" && outcome !== "delayed") count(tally.stopped, `${path} ${client}`);
}

interface Answer {
  allowed: boolean;
  limit: number;
  remaining: number;
  action?: string;
  shadow?: string[];
}

function outcomeOf(answer: Answer): Outcome {
  if (answer.action === "delay") return "delayed";
  if (answer.action === "shadow_ban") return "shadow_banned";
  if (!answer.allowed) return "refused";
  return answer.shadow ? "shadow_refused" : "allowed";
}

/** Sends requests with these attributes to the HTTP API, atOnce at a time. */
export async function ask(
  api: string,
  requests: readonly Record<string, string>[],
  atOnce = 16,
  tally = emptyTally(),
): Promise<Tally> {
  const left = [...requests];
  const work = async () => {
    for (let attributes = left.pop(); attributes; attributes = left.pop()) {
      const response = await fetch(`${api}/v1/check`, {
        method: "POST",
        body: JSON.stringify({ domain: "api", attributes }),
      });
      const answer = (await response.json()) as Answer;
      const outcome = outcomeOf(answer);
      note(tally, outcome, attributes.path ?? "", attributes.client_ip ?? "");
      const passed = outcome === "allowed" || outcome === "delayed";
      // A rule in shadow mode does not report what remains.
      if (passed && answer.limit > 0 && answer.remaining * 5 <= answer.limit) tally.near++;
    }
  };
  await Promise.all(Array.from({ length: atOnce }, work));
  return tally;
}
