/** A failed request to the admin door. */
export class Problem extends Error {
  /** The HTTP status, 0 if there was no response. */
  readonly status: number;
  /** The server does not have this endpoint: the feature is off, or not built in. */
  readonly absent: boolean;

  constructor(message: string, status: number, absent = false) {
    super(message);
    this.name = "Problem";
    this.status = status;
    this.absent = absent;
  }
}

/** Sends a GET request to the admin door. The path is relative, so that the page also works below a path prefix. */
export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return ask<T>(path, { ...(signal ? { signal } : {}) });
}

/** Sends a POST request to the admin door. */
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
    throw new Problem("The server does not respond.", 0);
  }
  if (!response.ok) throw await problem(response);
  return (await response.json()) as T;
}

// An unknown path gets a plain 404, an unknown rule a problem document.
async function problem(response: Response): Promise<Problem> {
  const { status } = response;
  const isJSON = response.headers.get("Content-Type")?.includes("json") ?? false;
  if (status === 404 && !isJSON) return new Problem("not available", status, true);
  if (status === 401)
    return new Problem("The token is missing or invalid. Reload the page to log in.", status);
  let text = "";
  if (isJSON) {
    const body = (await response.json().catch(() => ({}))) as { detail?: string; title?: string };
    text = body.detail ?? body.title ?? "";
  }
  return new Problem(text ? sentence(text) : `The server responded with status ${status}.`, status);
}

/** Turns a Go error message into a sentence. */
export function sentence(text: string): string {
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}
