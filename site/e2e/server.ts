import { readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The built site. */
export const folder = fileURLToPath(new URL("../../bin/site/", import.meta.url));

/** All files of the built site, relative to it. */
export const files = readdirSync(folder, { recursive: true, encoding: "utf8" }).map((name) =>
  name.replaceAll("\\", "/"),
);

/** All pages that were made of Markdown. */
export const pages = files.filter(
  (name) => name.endsWith(".html") && name !== "404.html" && !name.startsWith("playground/"),
);

const types: Record<string, string> = {
  ".html": "text/html",
  ".md": "text/markdown; charset=utf-8",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
  ".png": "image/png",
};

/** Serves the built site as any server of files would. */
export async function serve(): Promise<{ url: string; stop: () => void }> {
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url!, "http://localhost");
    const name = decodeURIComponent(pathname).slice(1);
    const file = name === "" || name.endsWith("/") ? `${name}index.html` : name;
    if (!files.includes(file)) {
      response.statusCode = 404;
      response.end();
      return;
    }
    response.setHeader("Content-Type", types[extname(file)] ?? "application/octet-stream");
    response.end(readFileSync(join(folder, file)));
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const stop = () => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, stop };
}
