import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";

/** A running admin door. */
export interface Door {
  url: string;
  stop: () => Promise<void>;
}

/**
 * Starts the binary that HEADGATE_BIN names, or bin/headgate, with nothing but
 * an admin door on a free port, and waits until it listens.
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
    if (child.exitCode !== null) return;
    const gone = once(child, "exit");
    child.kill("SIGKILL");
    await gone;
  };
  const lines: string[] = [];
  for await (const line of createInterface({ input: child.stderr })) {
    lines.push(line);
    const entry = JSON.parse(line) as { msg?: string; door?: string; address?: string };
    if (entry.msg === "listening" && entry.door === "admin") {
      child.stderr.resume();
      return { url: `http://${entry.address}`, stop };
    }
  }
  throw new Error(`${bin} did not listen:\n${lines.join("\n")}`);
}
