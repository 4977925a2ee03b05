/** A bar of a chart. */
export interface Bar {
  name: string;
  value: number;
  /** The value with its unit, as it is shown. */
  text: string;
  ours: boolean;
}

/** What the front page shows of docs/internals/benchmarks.md and docs/internals/accuracy.md. */
export interface Figures {
  memory: Bar[];
  time: Bar[];
  wrong: Bar[];
}

/** Returns the rows of the first table behind a line, without header; each row as its cells. */
export function table(text: string, behind: string): string[][] {
  const at = text.split("\n").findIndex((line) => line.includes(behind));
  if (at < 0) throw new Error(`no line contains ${JSON.stringify(behind)}`);
  const lines = text.split("\n").slice(at);
  const start = lines.findIndex((line) => /^\|[ :|-]+\|$/.test(line));
  if (start < 1) throw new Error(`no table behind ${JSON.stringify(behind)}`);
  const end = lines.findIndex((line, i) => i > start && !line.startsWith("|"));
  const rows = [lines[start - 1]!, ...lines.slice(start + 1, end < 0 ? undefined : end)];
  return rows.map((line) =>
    line
      .split("|")
      .slice(1, -1)
      .map((cell) => cell.trim().replaceAll("`", "")),
  );
}

/** Reads the figures from the texts of the two pages. Throws if one is missing. */
export function figures(benchmarks: string, accuracy: string): Figures {
  const [names, bytes] = table(benchmarks, "Independent of load");
  const memory = names!.slice(1).map((name, i) => bar(name, bytes![i + 1], (n) => `${n} B`));
  const zipf = table(benchmarks, "Nanoseconds per decision").find(
    ([row]) => row === "many keys, zipf, 1 core",
  );
  const time = [
    bar("headgate", zipf?.[1], (n) => `${n} ns`),
    bar("the fastest other", zipf?.[2], (n) => `${n} ns`),
    bar("floor", zipf?.[3], (n) => `${n} ns`),
  ];
  const wrong = table(accuracy, "### Poisson, 0.9 times the limit")
    .slice(1)
    .filter(([name]) => !name!.includes("strict") && !name!.includes("lenient"))
    .map(([name, percent]) =>
      bar(
        name!.replace(/ \d+ weighted/, "").replaceAll("_", " "),
        percent?.replace("%", ""),
        (n) => `${n.toFixed(1)}%`,
      ),
    );
  return { memory, time, wrong: wrong.map((one) => ({ ...one, ours: one.value === 0 })) };
}

function bar(name: string, cell: string | undefined, text: (value: number) => string): Bar {
  const value = Number(cell);
  if (cell === undefined || cell === "" || Number.isNaN(value))
    throw new Error(`no figure for ${name}: ${cell}`);
  return { name, value, text: text(value), ours: name === "headgate" };
}
