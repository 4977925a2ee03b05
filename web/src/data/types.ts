/** The outcomes of requests, in display order. */
export const outcomes = [
  "allowed",
  "refused",
  "delayed",
  "queued",
  "shadow_banned",
  "shadow_refused",
  "marked",
] as const;

export type Outcome = (typeof outcomes)[number];

/** Requests by outcome. */
export type Counts = Record<Outcome, number>;

/** The parts of a key in the order of the rule's `key:`, null for a missing one. */
export type Key = readonly (string | null)[];

/** Answer of GET /v1/status. */
export interface Status {
  version: string;
  go: string;
  started: string;
  uptime_s: number;
  ready: boolean;
  candidate: boolean;
  regions: boolean;
  store: {
    kind: string;
    healthy: boolean;
    circuit: string;
    keys: number;
    max_keys: number;
    bytes: number;
    evicted: number;
    deny_cache: { entries: number; hits: number };
    error?: string;
  };
  rules: {
    source: string;
    rules: number;
    domains: number;
    files: number;
    loaded_at: string;
    reloads_ok: number;
    reloads_failed: number;
    last_error?: string;
  };
  doors: { name: string; address: string }[];
  /** While the proxy finds out what its upstream can work on. */
  upstream?: Upstream;
}

/** What the proxy knows of its upstream. */
export interface Upstream {
  in_flight: number;
  /** Milliseconds without load; 0 if not yet known. */
  service_ms: number;
  shadow: boolean;
  would_shed?: number;
  classes: { class: string; limit: number; shed: number }[];
}

/** One rule of GET /v1/rules. */
export interface Rule {
  domain: string;
  name: string;
  file: string;
  line: number;
  limit: number;
  period_ms: number;
  rate: string;
  algorithm: string;
  burst: number;
  unlimited?: boolean;
  key: string[];
  match: string;
  mode: string;
  percent: number;
  action: string;
  on_store_error: string;
  /** Which refusals lead to which bans. */
  on_repeat?: string;
  /** Which requests pass and are marked. */
  soft?: string;
  description?: string;
}

/** One rule of GET /v1/blocks: how far off its limit can be. */
export interface Blocks {
  domain: string;
  rule: string;
  file: string;
  line: number;
  rate: string;
  age_us: number;
  over: number;
  bound: string;
  /** What this server has of it; null if it draws no blocks. */
  now: { keys: number; held: number; under: number; admitted: number; direct: number } | null;
}

/** GET /v1/regions: the regions that limits are shared with. */
export interface RegionState {
  /** Empty on a server without regions. */
  region: string;
  acts: boolean;
  asked: number;
  others: RegionStatus[];
  rules: (RegionBound & { domain: string; rule: string; file: string; line: number; rate: string })[];
}

/** Another region. */
export interface RegionStatus {
  region: string;
  state: "reachable" | "cut" | "unknown";
  /** How long ago its messages were read; null if never. */
  news_ms: number | null;
  lag_ms: number;
  cut_ms: number;
  given: number;
  received: number;
  unacknowledged: number;
  unconfirmed: number;
  error?: string;
}

/** How regions share a limit. */
export interface RegionBound {
  region?: string;
  /** The region that counts for all; absent if each has a part. */
  home?: string;
  limit: number;
  parts: { region: string; limit: number }[];
  over: number;
  bound: string;
  alone: string;
}

/** One allow or deny list of GET /v1/rules. */
export interface List {
  domain: string;
  name: string;
  list: "allow" | "deny";
  attribute: string;
  mode: string;
  status?: number;
  entries: number;
  bytes: number;
  files?: string[];
  hits: number;
  file: string;
  line: number;
}

/** The counts of one rule in one second. */
export interface RuleTick extends Counts {
  domain: string;
  rule: string;
  near: number;
}

/** The counts of one second: an event of GET /v1/live. */
export interface Tick {
  t: string;
  rules: RuleTick[];
  totals: Counts & { requests: number; unknown_domain?: number };
  degraded: number;
  store: { circuit: string; keys: number };
}

/** One rule of GET /v1/top. */
export interface TopRule {
  domain: string;
  rule: string;
  by: string;
  error_bound: number;
  total: number;
  /** The part of total that was estimated. */
  sampled: number;
  keys: { key: Key | null; key_hash?: string; count: number; error: number; share: number }[];
}

/** An early warning that has not ended, of GET /v1/warnings. */
export interface Warning {
  id: string;
  kind: string;
  text: string;
  domain: string;
  rule: string;
  key: Key | null;
  key_hash?: string;
  since: string;
}

/** What on_repeat has counted about a key. */
export interface Repeat {
  /** In shadow mode nobody is banned. */
  mode: string;
  /** How many refusals count towards the next ban, and how many lead to it. */
  refusals: number;
  of: number;
  within_ms: number;
  bans: number;
  last_ban?: string;
  next_ban_ms: number;
}

/** Answer of POST /v1/keys/…: the state of a key. */
export interface KeyState {
  domain: string;
  rule: string;
  /** Null where keys are shown hashed. */
  key: Key | null;
  allowed: boolean;
  unlimited?: boolean;
  limit: number;
  remaining: number;
  retry_after_ms: number | null;
  reset_after_ms: number;
  /** Set if the server records it (store.key_times) and anything is counted. */
  created_at?: string;
  changed_at?: string;
  banned_until?: string;
  /** Set if the rule has on_repeat. */
  on_repeat?: Repeat;
  /** Set if the action succeeded only in part. */
  warning?: string;
  override?: { rate?: string; burst?: number; until?: string } | null;
  /** How regions share the limit: remaining is then what this region has, or the home. */
  in_regions?: RegionBound;
}

/** One entry of GET /v1/overrides. */
export interface Override {
  domain: string;
  rule: string;
  key: Key | null;
  key_hash?: string;
  kind: string;
  rate?: string;
  burst?: number;
  until?: string;
  reason?: string;
  by?: string;
  created?: string;
}

/** One entry of GET /v1/audit. Those of queued requests have more fields. */
export interface Change {
  t: string;
  /** An action on a key; ban and would_ban may be by on_repeat. */
  action: string;
  by: string;
  domain: string;
  rule: string;
  key?: Key | null;
  key_hash?: string;
  reason?: string;
}

/** One decision of GET /v1/events. */
export interface Decision {
  t: string;
  domain: string;
  rule: string;
  key: Key | null;
  key_hash?: string;
  outcome: Outcome;
  reason: string;
  limit: number;
  remaining: number;
  retry_after_ms: number | null;
  door?: string;
  method?: string;
  path?: string;
}

/** Answer of GET /v1/candidate: the rules being compared with the active ones. */
export interface Candidate {
  state: "comparing" | "absent" | "failed";
  paths: string[];
  since: string | null;
  warm_at: string | null;
  requests: number;
  same: number;
  newly_refused: number;
  newly_allowed: number;
  by: { domain: string; rule: string; newly_refused: number; newly_allowed: number }[];
  rules: { last_error?: string };
}

/** One queue of GET /v1/queue. */
export interface QueueState {
  domain: string;
  rule: string;
  depth: number;
  bytes: number;
  oldest_age_ms: number;
  in_flight: number;
  delivered: number;
  failed: number;
  dead: number;
}

/** One request of GET /v1/queue/items. Missing fields are not shown. */
export interface QueueItem {
  id: string;
  domain?: string;
  rule?: string;
  key?: Key | null;
  key_hash?: string;
  method?: string;
  uri?: string;
  body_bytes?: number;
  attempts?: number;
  accepted_at?: string;
  next_attempt_at?: string;
  last_status?: number;
  last_error?: string;
}

/** Answer of POST /v1/explain. */
export interface Explanation {
  domain: string;
  known: boolean;
  allowed: boolean;
  rule?: string;
  reason: string;
  retry_after_ms: number | null;
  store_error?: string;
  parts: { descriptor?: string; rules: ExplainedRule[]; left_off?: number }[];
}

export interface ExplainedRule {
  rule: string;
  at: string;
  /** Set for a list: allow or deny. */
  list?: string;
  limit: string;
  /** The row of a table, or the entry of a list. */
  limit_from?: string;
  on_repeat?: string;
  /** Which requests pass and are marked. */
  soft?: string;
  /** How far off the limit can be, with sync: blocks. */
  blocks?: Pick<Blocks, "bound">;
  regions?: RegionBound;
  cost: number;
  mode: string;
  percent: number;
  applies: boolean;
  why?: { condition: string; want: string; got: string }[];
  enforced?: boolean;
  overridden?: boolean;
  /** When the ban of this key ends; count is filled in as well. */
  banned_until?: string;
  key?: { attribute?: string; value: string; missing?: boolean; hashed?: boolean }[];
  count?: {
    allowed: boolean;
    reason: string;
    limit: number;
    used: number;
    remaining: number;
    retry_after_ms: number | null;
    reset_after_ms: number;
    delay_ms?: number;
  };
}
