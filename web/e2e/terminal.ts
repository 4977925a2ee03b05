import { spawn } from "node:child_process";
import { once } from "node:events";

/** Runs a command in a pseudo terminal of this size, and returns the last screen it drew. */
export async function lastScreen(
  command: string,
  columns: number,
  rows: number,
  ms: number,
): Promise<string> {
  const { NO_COLOR: _, ...environment } = process.env;
  const child = spawn(
    "script",
    ["-qfec", `stty cols ${columns} rows ${rows}; exec ${command}`, "/dev/null"],
    {
      stdio: ["ignore", "pipe", "ignore"],
      env: { ...environment, TERM: "xterm-256color" },
    },
  );
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    output += text;
  });
  await new Promise((done) => setTimeout(done, ms));
  const gone = once(child, "exit");
  child.kill();
  await gone;
  // A screen starts at the top left corner, and ends by clearing the rest.
  const screens = output.split("\x1b[H").slice(1);
  const complete = screens.filter((screen) => screen.includes("\x1b[J")).at(-1);
  if (!complete) throw new Error(`${command} drew no screen:\n${output}`);
  return complete.slice(0, complete.indexOf("\x1b[J"));
}

const classes: Record<string, string> = {
  1: "bold",
  2: "faint",
  31: "red",
  32: "green",
  33: "yellow",
  36: "cyan",
};

/** Converts a screen to HTML: text with colours. */
export function toHTML(screen: string): string {
  const escaped = (text: string) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  let open = 0;
  const html = screen
    .replaceAll("\r", "")
    .replaceAll("\x1b[K", "")
    // biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences start with one
    .split(/\x1b\[([\d;]*)m/)
    .map((part, i) => {
      if (i % 2 === 0) return escaped(part);
      if (part === "0" || part === "") {
        const closed = "</span>".repeat(open);
        open = 0;
        return closed;
      }
      open++;
      return `<span class="${part
        .split(";")
        .map((code) => classes[code] ?? "")
        .join(" ")}">`;
    })
    .join("");
  return html.trimEnd() + "</span>".repeat(open);
}

/** A terminal window around some HTML. */
export const terminalPage = (title: string, html: string): string => `<!doctype html>
<meta charset="utf-8" />
<style>
  body { margin: 0; padding: 20px; background: #fff; }
  .window { display: inline-block; border-radius: 10px; overflow: hidden; background: #12181b; border: 1px solid #28323a; }
  .bar { display: flex; align-items: center; gap: 8px; padding: 10px 14px; background: #1e262a; color: #a9b8bd;
         font: 13px system-ui, sans-serif; }
  .bar i { width: 11px; height: 11px; border-radius: 50%; background: #3c4a52; }
  .bar span { flex: 1; text-align: center; margin-right: 49px; }
  pre { margin: 0; padding: 14px 18px 18px; color: #d8e2e2;
        font: 13px/1.45 ui-monospace, "SF Mono", "Cascadia Code", "JetBrains Mono", "DejaVu Sans Mono", monospace; }
  .bold { font-weight: 700; color: #fff; }
  .faint { color: #8b9ba1; }
  .red { color: #fb7185; }
  .green { color: #4ade80; }
  .yellow { color: #fbbf24; }
  .cyan { color: #67e8f9; }
</style>
<div class="window"><div class="bar"><i></i><i></i><i></i><span>${title}</span></div><pre>${html}</pre></div>
`;
