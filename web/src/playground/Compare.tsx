import { about } from "./algorithms.ts";
import { type Player, sayTime } from "./player.ts";

/** Formats a number of bytes. */
export function sayBytes(n: number): string {
  if (n < 1024) return `${n} B`;
  const k = n / 1024;
  return k < 1024 ? `${k.toFixed(1)} KiB` : `${(k / 1024).toFixed(1)} MiB`;
}

/** The results of all lanes as a table, also for readers who do not see the charts. */
export function Compare(props: { player: Player }) {
  const { player } = props;
  void player.beat.value;
  const { shown, limit, period } = player.settings.value;
  const rows = shown.map((name) => ({ name, ...player.simulation.look(name) }));
  return (
    <section class="panel compare" aria-labelledby="compare">
      <div class="section-head">
        <h2 id="compare">Results</h2>
        <p class="muted small">
          All algorithms received the same <b class="num">{player.simulation.requests}</b> requests. Each is
          checked against an exact log: <em>too many</em> were allowed although this made more than {limit} in{" "}
          {sayPeriod(period)}, <em>too strict</em> were refused although the limit had space.
        </p>
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard */}
      <section class="scroll-x" tabIndex={0} aria-label="Table of results">
        <table class="table">
          <thead>
            <tr>
              <th scope="col">Algorithm</th>
              <th scope="col" class="num">
                Allowed
              </th>
              <th scope="col" class="num">
                Refused
              </th>
              <th scope="col" class="num">
                Too many
              </th>
              <th scope="col" class="num">
                Too strict
              </th>
              <th scope="col" class="num">
                Peak per period
              </th>
              <th scope="col" class="num">
                Used
              </th>
              <th scope="col" class="num">
                Retry after
              </th>
              <th scope="col" class="num">
                Memory
              </th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr key={row.name} data-algorithm={row.name}>
                <th scope="row">{about[row.name].title}</th>
                <td class="num">{row.allowed}</td>
                <td class="num">{row.refused}</td>
                <td class={`num ${row.tooMany > 0 ? "wrong" : ""}`}>{row.tooMany}</td>
                <td class={`num ${row.tooStrict > 0 ? "wrong" : ""}`}>{row.tooStrict}</td>
                <td class={`num ${row.peak > limit ? "wrong" : ""}`}>{row.peak}</td>
                <td class="num">
                  {row.used.toFixed(Number.isInteger(row.used) ? 0 : 1)} of {row.capacity}
                </td>
                <td class="num">{row.retryAfter === 0 ? "–" : sayTime(row.retryAfter)}</td>
                <td class="num">{sayBytes(row.bytes)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </section>
  );
}

function sayPeriod(us: number): string {
  return sayTime(us).replace(".0 s", " s");
}
