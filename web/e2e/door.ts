import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { createInterface } from "node:readline";

/**
 * A port that nobody listens on, below those that the kernel uses for connections: nobody
 * gets it while a server that has it starts again.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * 20_000);
    const server = createServer().listen(port, "127.0.0.1");
    const free = await once(server, "listening").then(
      () => true,
      () => false,
    );
    if (!free) continue;
    server.close();
    await once(server, "close");
    return port;
  }
}

/** A running server. */
export interface Door {
  /** The admin door. */
  url: string;
  /** The HTTP API. */
  api: string;
  /** The reverse proxy, if it is on. */
  proxy: string;
  stop: () => Promise<void>;
}

/**
 * Starts the binary that HEADGATE_BIN names, or bin/headgate, with the admin door
 * and the API on free ports, and waits until it listens. args are appended and can
 * override this.
 */
export async function openDoor(args: readonly string[] = []): Promise<Door> {
  const bin = process.env.HEADGATE_BIN ?? new URL("../../bin/headgate", import.meta.url).pathname;
  const free = "127.0.0.1:0";
  const child = spawn(
    bin,
    [
      "serve",
      "--log-format",
      "json",
      "--listen-admin",
      free,
      "--listen-api",
      free,
      "--listen-grpc",
      "off",
      "--listen-resp",
      "off",
      ...args,
    ],
    { stdio: ["ignore", "ignore", "pipe"] },
  );
  const stop = async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, "exit");
    child.kill("SIGKILL");
    await gone;
  };
  const lines: string[] = [];
  const doors = new Map<string, string>();
  const wanted = args.includes("--upstream") ? ["admin", "api", "proxy"] : ["admin", "api"];
  for await (const line of createInterface({ input: child.stderr })) {
    lines.push(line);
    if (!line.startsWith("{")) continue; // an error before logging starts
    const entry = JSON.parse(line) as { msg?: string; door?: string; address?: string };
    if (entry.msg === "listening" && entry.door) doors.set(entry.door, `http://${entry.address}`);
    if (wanted.every((name) => doors.has(name))) {
      child.stderr.resume();
      return { url: doors.get("admin")!, api: doors.get("api")!, proxy: doors.get("proxy") ?? "", stop };
    }
  }
  throw new Error(`${bin} did not listen:\n${lines.join("\n")}`);
}
