import { Core } from "./wasm.ts";

/** Reports how many bytes of the total have arrived. */
export type Progress = (received: number, total: number) => void;

/**
 * Fetches and starts the WebAssembly. The file is gzip: the admin door sets
 * Content-Encoding, so the browser unpacks it; a plain file server does not. The
 * first bytes show which it is: gzip starts with 1f 8b.
 */
export async function load(url: string, progress: Progress): Promise<Core> {
  const response = await fetch(url);
  if (response.status === 404)
    throw new Error("This binary was built without it: make build adds it, as do all releases.");
  if (!response.ok || !response.body) throw new Error(`${url}: ${response.status} ${response.statusText}`);
  const total = response.headers.has("content-encoding")
    ? 0
    : Number(response.headers.get("content-length") ?? 0);
  const bytes = await collect(response.body, total, progress);
  return Core.start(await WebAssembly.compile(await plain(bytes)));
}

/** Starts the WebAssembly from gzip in base64, for a page without a server. */
export async function loadText(text: string): Promise<Core> {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return Core.start(await WebAssembly.compile(await plain(bytes)));
}

async function collect(body: ReadableStream<Uint8Array>, total: number, progress: Progress) {
  const parts: Uint8Array[] = [];
  let length = 0;
  const reader = body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    length += value.length;
    progress(length, total);
  }
  const bytes = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

/** Unpacks gzip, and returns anything else unchanged. */
export async function plain(bytes: Uint8Array<ArrayBuffer>): Promise<ArrayBuffer> {
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return bytes.buffer;
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(unpacked).arrayBuffer();
}
