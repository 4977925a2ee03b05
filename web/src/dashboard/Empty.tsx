import type { Rule, Status } from "../data/types.ts";
import { Command } from "../ui/Command.tsx";

/** Commands that send a first request to the doors that are listening. */
export function firstCommands(
  status: Status,
  rules: readonly Rule[],
  host: string,
): { door: string; text: string }[] {
  const at = (name: string) => {
    const address = status.doors.find((d) => d.name === name)?.address;
    return address?.replace(/^(0\.0\.0\.0|\[::\])(?=:)/, host);
  };
  const rule = rules[0];
  const path = /\bpath is (\/\S*)/.exec(rule?.match ?? "")?.[1]?.replace(/\*\*?.*$/, "try") ?? "/";
  const out: { door: string; text: string }[] = [];
  const proxy = at("proxy");
  if (proxy)
    out.push({ door: "proxy", text: `for i in 1 2 3 4 5 6; do curl -i http://${proxy}${path}; done` });
  const api = at("api");
  if (api) {
    const attributes: Record<string, string> = { path, client_ip: "198.51.100.7" };
    for (const name of rule?.key ?? []) attributes[name] ??= "try";
    const body = JSON.stringify({ domain: rule?.domain ?? "api", attributes }).replaceAll("'", "");
    out.push({ door: "api", text: `curl -i http://${api}/v1/check -d '${body}'` });
  }
  return out;
}

/** The dashboard before the first request: how to send one. */
export function Empty(props: { status: Status | undefined; rules: readonly Rule[] }) {
  const commands = props.status ? firstCommands(props.status, props.rules, location.hostname) : [];
  return (
    <section class="panel empty" aria-labelledby="empty">
      <h2 id="empty">No requests yet</h2>
      <p class="muted">
        Headgate is running. Send a few requests and watch them appear here within a second.
      </p>
      {props.rules.length === 0 && props.status && (
        <p>
          No rules are configured, so every request is allowed. An example for <code>rules.yaml</code>:
        </p>
      )}
      {props.rules.length === 0 && props.status && (
        <Command
          label="the example rule"
          text={
            "domain: api\nlimits:\n  - name: login\n    match: {method: POST, path: /login}\n    key: [client_ip]\n    algorithm: sliding_log\n    rate: 5/minute"
          }
        />
      )}
      {commands.map(({ door, text }) => (
        <div key={door} class="empty-command">
          <h3>{door === "proxy" ? "Send requests through the proxy" : "Call the HTTP API"}</h3>
          <Command label={`the command for the ${door}`} text={text} />
        </div>
      ))}
      <p class="muted small">
        Or try the algorithms in the <a href="./playground">playground</a>.
      </p>
    </section>
  );
}
