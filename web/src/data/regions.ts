import type { RegionBound } from "./types.ts";

/** What the region that answered has of a limit; undefined if that is the whole one. */
export const partOf = (r?: RegionBound): number | undefined =>
  r?.parts.find((p) => p.region === r.region)?.limit;
