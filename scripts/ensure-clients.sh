#!/usr/bin/env bash
# Tries to install what the test of the clients needs for Node, into the user's cache
# folder: the compiler of TypeScript, and the frameworks that there is middleware for.
# Never fails: the test reports what is missing.
set -uo pipefail
cache=${XDG_CACHE_HOME:-$HOME/.cache}/headgate/clients
[ -d "$cache/node_modules/typescript" ] && [ -d "$cache/node_modules/@hono/node-server" ] && exit 0
command -v npm >/dev/null 2>&1 || exit 0
mkdir -p "$cache" || exit 0
echo "ensure: installing TypeScript, Express, Fastify and Hono into $cache" >&2
timeout 120 npm install --prefix "$cache" --no-save --no-package-lock --no-audit --no-fund --ignore-scripts --fetch-retries 1 --loglevel=error \
  typescript@7.0.2 express@5.1.0 fastify@5.6.1 hono@4.10.1 @hono/node-server@1.19.5 >&2 </dev/null
exit 0
