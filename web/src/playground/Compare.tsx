import { about } from "./algorithms.ts";
import { type Player, sayTime } from "./player.ts";

/** A number of bytes as people say it. */
export function sayBytes(n: number): string {
  if (n < 1024) return `${n} B`;
  const k = n / 1024;
  return k < 1024 ? `${k.toFixed(1)} KiB` : `${(k / 1024).toFixed(1)} MiB`;
}

/** All lanes in numbers: what the pictures show, for everybody. */
export function Compare(props: { player: Player }) {
  const { player } = props;
  void player.beat.value;
  const { shown, limit, period } = player.settings.value;
  const rows = shown.map((name) => ({ name, ...player.simulation.look(name) }));
  return (
    <section class="panel compare" aria-labelledby="compare">
      <div class="section-head">
        <h2 id="compare">In numbers</h2>
        <p class="muted small">
          Same traffic for all: <b class="num">{player.simulation.requests}</b> requests. An exact log of what
          each has let through judges it: more than {limit} within any {sayPeriod(period)} is too many, a
          refusal despite room is too strict.
        </p>
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard */}
      <section class="scroll-x" tabIndex={0} aria-label="Table of all algorithms shown">
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
                Most in a period
              </th>
              <th scope="col" class="num">
                In use
              </th>
              <th scope="col" class="num">
                Retry after
              </th>
              <th scope="col" class="num">
                State
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
