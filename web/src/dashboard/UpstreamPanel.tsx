import type { Upstream } from "../data/types.ts";
import { count, duration } from "../ui/format.ts";
import { Panel } from "../ui/Panel.tsx";
import { Scroll } from "../ui/table.tsx";

/** How much the upstream can work on at once, and what is shed beyond that. */
export function UpstreamPanel(props: { of: Upstream }) {
  const { in_flight, service_ms, shadow, would_shed = 0, classes } = props.of;
  const takes = service_ms > 0 ? `, which take ${duration(service_ms)} each without load` : "";
  return (
    <Panel
      title="Upstream"
      class="upstream"
      about={`${count(in_flight)} requests in progress${takes}.${
        shadow ? ` Shadow mode: none is shed, ${count(would_shed)} would have been.` : ""
      }`}
    >
      <Scroll label="Classes of requests">
        <table class="table">
          <caption class="hidden">Requests at once, and those shed since the start, by class</caption>
          <thead>
            <tr>
              <th scope="col">Class</th>
              <th
                scope="col"
                class="num"
                title="A request of the class is shed if as many of all classes are in progress"
              >
                Limit at once
              </th>
              {!shadow && (
                <th scope="col" class="num" title="Answered 503, since the start">
                  Shed
                </th>
              )}
            </tr>
          </thead>
          <tbody>
            {classes.map((c) => (
              <tr key={c.class} data-class={c.class}>
                <th scope="row">{c.class}</th>
                <td class="num">{count(c.limit)}</td>
                {!shadow && <td class="num">{count(c.shed)}</td>}
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </Panel>
  );
}
