#!/usr/bin/env bash
# Tries to install Express with cookie-parser, and Fastify, into the user's cache
# folder, as upstreams for tests of the proxy. Never fails: tests skip what is missing.
# They get a separate folder because npm removes packages that it does not know.
set -uo pipefail
cache=${XDG_CACHE_HOME:-$HOME/.cache}/headgate/upstreams
[ -d "$cache/node_modules/express" ] && [ -d "$cache/node_modules/cookie-parser" ] && [ -d "$cache/node_modules/fastify4" ] && exit 0
command -v npm >/dev/null 2>&1 || exit 0
mkdir -p "$cache" || exit 0
echo "ensure: installing Express and Fastify into $cache" >&2
timeout 120 npm install --prefix "$cache" --no-save --no-package-lock --no-audit --no-fund --ignore-scripts --fetch-retries 1 --loglevel=error \
  express@5.1.0 express4@npm:express@4.21.2 fastify@5.6.1 fastify4@npm:fastify@4.29.1 cookie-parser@1.4.7 >&2 </dev/null
exit 0
