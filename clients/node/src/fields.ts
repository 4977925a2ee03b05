// The header field RateLimit: a List of RFC 9651, which is ignored as a whole if it is malformed.

const key = "[a-z*][a-z0-9_.*-]*";
const string = '"[\\x20!\\x23-\\x5b\\x5d-\\x7e]*(?:\\\\["\\\\][\\x20!\\x23-\\x5b\\x5d-\\x7e]*)*"';
const value = [
  "-?(?:[0-9]{1,12}\\.[0-9]{1,3}|[0-9]{1,15})", string, "[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*",
  ":[A-Za-z0-9+/=]*:", "\\?[01]", "@-?[0-9]{1,15}", '%"(?:[\\x20!\\x23\\x24\\x26-\\x7e]|%[0-9a-f]{2})*"',
].join("|");
const parameter = new RegExp(`; *(${key})(?:=(${value}))?`, "g");
const member = new RegExp(`${string}((?:; *${key}(?:=(?:${value}))?)*)[ \\t]*(,[ \\t]*|$)`, "y");
const plain = new RegExp(`(${key})=([0-9]{1,15})[ \\t]*(,[ \\t]*|$)`, "y");

/** Returns the matches that make up a field, or undefined if they do not. */
function whole(pattern: RegExp, separator: number, field: string): RegExpExecArray[] | undefined {
  const found: RegExpExecArray[] = [];
  for (pattern.lastIndex = 0; pattern.lastIndex < field.length; ) {
    const match = pattern.exec(field);
    if (!match) return undefined;
    found.push(match);
    if (match.index + match[0].length === field.length) break;
  }
  return found.at(-1)?.[separator] === "" ? found : undefined;
}

const trimmed = (field: string) => field.replace(/^ +| +$/g, "");

/** Returns the parameters of each member, or undefined if the field is malformed or empty. */
function members(field: string): Map<string, string>[] | undefined {
  return whole(member, 2, trimmed(field))?.map((m) => new Map([...(m[1] ?? "").matchAll(parameter)].map((p) => [p[1] ?? "", p[2] ?? ""])));
}

const number = (text: string | undefined) => (text && /^-?[0-9]+$/.test(text) ? Number(text) : -1);

/** Returns the seconds of each member of which nothing remains: t, or reset as in draft-07. */
export function exhausted(field: string): number[] {
  const known = members(field);
  if (!known) {
    const values = new Map((whole(plain, 3, trimmed(field)) ?? []).map((m) => [m[1], m[2]]));
    const reset = number(values.get("reset"));
    return number(values.get("remaining")) === 0 && reset >= 0 ? [reset] : [];
  }
  if (known.some((m) => number(m.get("r")) < 0 || (m.has("t") && number(m.get("t")) < 0))) return [];
  return known.filter((m) => number(m.get("r")) === 0 && m.has("t")).map((m) => number(m.get("t")));
}

/**
 * Returns the value of a field about limits in an answer whose application has set it too. Lists of
 * limits are joined; otherwise there is one limit, which is ours.
 */
export function joined(theirs: string | undefined, name: string, ours: string): string {
  const list = /^ratelimit(-policy)?$/i.test(name);
  return list && theirs !== undefined && members(theirs) ? `${theirs}, ${ours}` : ours;
}
