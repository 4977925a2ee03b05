import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { pictures, resolve } from "./links.ts";
import { anchor, isPage, place } from "./pages.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const repository = "https://github.com/headgate/headgate";

test.each([
  ["../rules/rules.md", "docs/run/tls.md", "/docs/rules/rules.md"],
  ["../rules/rules.md#keys", "docs/run/tls.md", "/docs/rules/rules.md#keys"],
  ["#keys", "docs/rules/rules.md", "#keys"],
  ["../run/redis.md", "docs/start/nginx.md", "/docs/run/redis.md"],
  ["decisions/README.md", "docs/README.md", "/docs/decisions/index.md"],
  ["docs/rules/rules.md", "CHANGELOG.md", "/docs/rules/rules.md"],
  ["../../CHANGELOG.md", "docs/start/install.md", "/changelog.md"],
  ["../clients/README.md", "docs/README.md", "/clients/index.md"],
  ["../rules.schema.json", "docs/rules/rules.md", "/docs/rules.schema.json"],
  ["../../api/openapi.yaml", "docs/reference/api.md", "/api/openapi.yaml"],
  ["../../examples/figma", "docs/rules/rules.md", `${repository}/tree/main/examples/figma`],
  ["../CONTRIBUTING.md#words", "docs/README.md", `${repository}/blob/main/CONTRIBUTING.md#words`],
  ["https://example.com/x.md", "docs/rules/rules.md", "https://example.com/x.md"],
])("%s in %s leads to %s", (href, from, want) => {
  expect(resolve(href, from, root)).toBe(want);
});

test.each(["../examples/no-such-example", "../../outside.txt"])("%s is an error", (href) => {
  expect(() => resolve(href, "docs/rules/rules.md", root)).toThrow(
    `docs/rules/rules.md: link to ${href}: no such file`,
  );
});

test.each([
  ["Refused requests that count", "refused-requests-that-count"],
  ["TLS, tokens and connection limits", "tls-tokens-and-connection-limits"],
  ["I want to …", "i-want-to-"],
  ["charge_on: the answer's status", "charge_on-the-answers-status"],
])("the anchor of %j is %s, as on GitHub", (heading, want) => {
  expect(anchor(heading)).toBe(want);
});

test("pages are the docs, the changelog and the clients' pages", () => {
  const all = [
    "docs/rules/rules.md",
    "docs/decisions/0110-regions.md",
    "CHANGELOG.md",
    "clients/node/README.md",
    "site/index.md",
  ];
  expect(all.filter(isPage).map(place)).toEqual([
    "docs/rules/rules.md",
    "docs/decisions/0110-regions.md",
    "changelog.md",
    "clients/node/index.md",
    "index.md",
  ]);
  const others = [
    "README.md",
    "CONTRIBUTING.md",
    "docs/decisions/0000-template.md",
    "clients/conformance/README.md",
    "site/README.md",
  ];
  expect(others.filter(isPage)).toEqual([]);
});

test("pictures in HTML are relative to their page", () => {
  expect(pictures('<source srcset="pictures/a.png"><img alt="x" src="pictures/b.png">')).toBe(
    '<source srcset="./pictures/a.png"><img alt="x" src="./pictures/b.png">',
  );
  expect(pictures('<img src="https://example.com/c.png">')).toBe('<img src="https://example.com/c.png">');
});
