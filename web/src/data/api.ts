/** Why the admin door did not do what it was asked. */
export class Problem extends Error {
  /** The HTTP status, 0 if nobody answered. */
  readonly status: number;
  /** This Headgate has no such endpoint: what is asked for is not switched on, or not built in. */
  readonly absent: boolean;

  constructor(message: string, status: number, absent = false) {
    super(message);
    this.name = "Problem";
    this.status = status;
    this.absent = absent;
  }
}

/** Asks the admin door. The path is relative, so that it may be behind another. */
export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return ask<T>(path, { ...(signal ? { signal } : {}) });
}

/** Tells the admin door to do something. */
export async function post<T>(path: string, body: unknown): Promise<T> {
  return ask<T>(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
}

async function ask<T>(path: string, init: RequestInit): Promise<T> {
  let response: Response;
  try {
    response = await fetch(`.${path}`, { cache: "no-store", ...init });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Problem("Headgate does not answer.", 0);
  }
  if (!response.ok) throw await problem(response);
  return (await response.json()) as T;
}

// A path that leads nowhere is answered by a plain 404; a rule that is not
// there by a problem that says so.
async function problem(response: Response): Promise<Problem> {
  const { status } = response;
  const told = response.headers.get("Content-Type")?.includes("json") ?? false;
  if (status === 404 && !told) return new Problem("not available", status, true);
  if (status === 401) return new Problem("The token is missing or wrong: reload the page to log in.", status);
  let text = "";
  if (told) {
    const body = (await response.json().catch(() => ({}))) as { detail?: string; title?: string };
    text = body.detail ?? body.title ?? "";
  }
  return new Problem(text ? sentence(text) : `Headgate answers ${status}.`, status);
}

/** Makes an error message of Go a sentence. */
export function sentence(text: string): string {
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}
