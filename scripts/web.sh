#!/usr/bin/env bash
# Builds and tests the web pages of the admin door. The source is in web/; the output,
# internal/door/admin/dashboard/dist, is committed so that go build needs no Node.
#
#   scripts/web.sh build    rebuilds internal/door/admin/dashboard/dist
#   scripts/web.sh check    checks types, lint and tests, and that dist is up to date
#   scripts/web.sh browser  tests the pages in Chromium, with the binary in HEADGATE_BIN
#   scripts/web.sh static   builds the playground alone into bin/playground
#   scripts/web.sh pictures takes the screenshots in docs/pictures, in Chromium
#
# check and browser try to install what is missing (scripts/ensure-web.sh). Without
# Node, its packages or Chromium they print a note and succeed, unless
# HEADGATE_REQUIRE_WEB is set.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/web-tools.sh
. scripts/web-tools.sh
dist=internal/door/admin/dashboard/dist

# same fails if two folders differ, and prints the differences.
same() {
  diff -rq "$1" "$2" >&2 || {
    echo "error: $1 is out of date" >&2
    echo "hint: run make web and commit the changes" >&2
    exit 1
  }
}

# static builds the playground alone, if anything has changed since.
static() {
  local page=bin/playground/index.html
  [[ -f $page && -z $(find web internal/door/admin/dashboard/playground -name node_modules -prune -o -type f -newer $page -print -quit) ]] ||
    (cd web && npm run --silent build:static -- --logLevel warn)
}

case ${1:-} in
  build)
    ready must web
    (cd web && npm run --silent build -- --logLevel warn)
    ;;
  check)
    ready may web
    scripts/wasm.sh
    (cd web && npm run --silent check && npm run --silent test)
    built=$(mktemp -d)
    trap 'rm -rf "$built"' EXIT
    (cd web && npm run --silent build -- --logLevel warn --outDir "$built")
    same "$dist" "$built"
    static
    ;;
  browser)
    ready may web
    find_browser
    scripts/wasm.sh
    static
    (cd web && npm run --silent e2e)
    ;;
  static)
    ready must web
    scripts/wasm.sh
    static
    echo "web: bin/playground/index.html"
    ;;
  pictures)
    HEADGATE_REQUIRE_WEB=1
    ready must web
    find_browser
    (cd web && npm run --silent pictures)
    ;;
  *)
    sed -n '2,14p' "$0" >&2
    exit 2
    ;;
esac
