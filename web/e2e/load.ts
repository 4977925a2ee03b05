/** What a generator of load was answered: it counts for itself. */
export interface Told {
  requests: number;
  allowed: number;
  refused: number;
  /** Passed with no more than a fifth of the limit left. */
  near: number;
}

/** Asks the HTTP API about requests with these attributes, so many at a time. */
export async function ask(
  api: string,
  requests: readonly Record<string, string>[],
  atOnce = 16,
): Promise<Told> {
  const told: Told = { requests: 0, allowed: 0, refused: 0, near: 0 };
  const left = [...requests];
  const work = async () => {
    for (let attributes = left.pop(); attributes; attributes = left.pop()) {
      const response = await fetch(`${api}/v1/check`, {
        method: "POST",
        body: JSON.stringify({ domain: "api", attributes }),
      });
      const said = (await response.json()) as { allowed: boolean; limit: number; remaining: number };
      told.requests++;
      if (said.allowed) told.allowed++;
      else told.refused++;
      if (said.allowed && said.remaining * 5 <= said.limit) told.near++;
    }
  };
  await Promise.all(Array.from({ length: atOnce }, work));
  return told;
}
