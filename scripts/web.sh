#!/usr/bin/env bash
# Builds and tests the web pages of the admin door. The source is in web/; the output,
# internal/door/admin/dashboard/dist, is committed so that go build needs no Node.
#
#   scripts/web.sh build    rebuilds internal/door/admin/dashboard/dist
#   scripts/web.sh check    checks types, lint and tests, and that dist is up to date
#   scripts/web.sh browser  tests the pages in Chromium, with the binary in HEADGATE_BIN
#   scripts/web.sh static   builds the playground alone into dist/playground
#   scripts/web.sh pictures takes the screenshots in docs/pictures, in Chromium
#
# check and browser try to install what is missing (scripts/ensure-web.sh). Without
# Node, its packages or Chromium they print a note and succeed, unless
# HEADGATE_REQUIRE_WEB is set.
set -euo pipefail
cd "$(dirname "$0")/.."
dist=internal/door/admin/dashboard/dist
wasm=web/wasm/headgate.wasm.gz
# The Go version that built the committed WebAssembly: another one gives other bytes.
made_by=web/wasm/GOVERSION

# skip says why nothing is done; with HEADGATE_REQUIRE_WEB that is a failure.
skip() {
  if [ -n "${HEADGATE_REQUIRE_WEB:-}" ]; then
    echo "error: $1" >&2
    exit 1
  fi
  echo "web: skipped, $1"
  exit 0
}

# compile builds the WebAssembly of the playground, with the same bytes everywhere.
compile() {
  GOFLAGS='' GOOS=wasip1 GOARCH=wasm go build -trimpath -buildvcs=false -buildmode=c-shared \
    -ldflags='-s -w -buildid=' -o web/wasm/headgate.wasm ./web/wasm
  gzip -9nc web/wasm/headgate.wasm >"$wasm"
  rm web/wasm/headgate.wasm
}

# arithmetic compiles it, or takes the committed one if another Go built that.
arithmetic() {
  if command -v go >/dev/null 2>&1 && [ "$(go env GOVERSION)" = "$(cat "$made_by")" ]; then
    compile
  else
    echo "web: using the committed WebAssembly, built with $(cat "$made_by")"
    cp "$dist"/assets/headgate-*.wasm.gz "$wasm"
  fi
}

# need says what is missing, and fails if the work must be done, else skips it.
need() {
  if [ "$1" != must ]; then skip "$2"; fi
  echo "error: $2" >&2
  exit 1
}

# ready installs the packages of package-lock.json, if they are missing.
ready() {
  scripts/ensure-web.sh node
  # shellcheck source=scripts/web-tools.sh
  . scripts/web-tools.sh
  local wants="Node $least or newer with npm is needed"
  command -v node >/dev/null 2>&1 || need "$1" "no Node in PATH: $wants"
  command -v npm >/dev/null 2>&1 || need "$1" "no npm in PATH: $wants"
  node_is_new || need "$1" "Node $(node_version) is too old: $wants"
  if ! cmp -s web/package-lock.json web/node_modules/.headgate-lock; then
    (cd web && timeout 300 npm ci --fetch-retries 1 --no-audit --no-fund --loglevel=error) || need "$1" "npm cannot fetch the packages"
    cp web/package-lock.json web/node_modules/.headgate-lock
  fi
}

# find_browser finds a Chromium and checks that it starts: some commands of that
# name only print where to get it, and some machines do not let it start.
find_browser() {
  scripts/ensure-web.sh chromium
  CHROMIUM=$(browser)
  export CHROMIUM
  [ -n "$CHROMIUM" ] || skip "no Chromium in PATH"
  local flags=(--headless) page
  if [ "$(id -u)" -eq 0 ]; then flags+=(--no-sandbox); fi
  page=$(timeout 120 "$CHROMIUM" "${flags[@]}" --dump-dom about:blank 2>/dev/null </dev/null || true)
  [[ $page == *"<html>"* ]] || skip "$CHROMIUM does not start"
}

# same fails if two folders differ, and prints the differences.
same() {
  diff -rq "$1" "$2" >&2 || {
    echo "error: $1 is out of date" >&2
    echo "hint: run make web and commit the changes" >&2
    exit 1
  }
}

case ${1:-} in
  build)
    ready must
    go env GOVERSION >"$made_by"
    compile
    (cd web && npm run --silent build -- --logLevel warn)
    ;;
  check)
    ready may
    arithmetic
    (cd web && npm run --silent check && npm run --silent test)
    built=$(mktemp -d)
    trap 'rm -rf "$built"' EXIT
    (cd web && npm run --silent build -- --logLevel warn --outDir "$built")
    same "$dist" "$built"
    ;;
  browser)
    ready may
    find_browser
    arithmetic
    (cd web && npm run --silent build:static -- --logLevel warn && npm run --silent e2e)
    ;;
  static)
    ready must
    arithmetic
    (cd web && npm run --silent build:static -- --logLevel warn)
    echo "web: dist/playground/index.html"
    ;;
  pictures)
    HEADGATE_REQUIRE_WEB=1
    ready must
    find_browser
    (cd web && npm run --silent pictures)
    ;;
  *)
    sed -n '2,14p' "$0" >&2
    exit 2
    ;;
esac
