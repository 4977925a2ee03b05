#!/usr/bin/env bash
# Works on the pages of the admin door: their source is web/, what is made of it
# internal/dashboard/dist, which is committed so that go build needs no Node.
#
#   scripts/web.sh build    writes internal/dashboard/dist anew
#   scripts/web.sh check    types, lint, tests, and: is dist what build makes?
#
# Without Node, check says so and succeeds, unless HEADGATE_REQUIRE_WEB is set.
set -euo pipefail
cd "$(dirname "$0")/.."
dist=internal/dashboard/dist

# ready installs the packages that package-lock.json names, if they are not.
ready() {
  if ! command -v npm >/dev/null 2>&1; then
    if [ -n "${HEADGATE_REQUIRE_WEB:-}" ] || [ "$1" = build ]; then
      echo "error: there is no Node in PATH" >&2
      echo "hint: install Node 20.19 or newer with npm, on Debian and Ubuntu: sudo apt-get install npm" >&2
      exit 1
    fi
    echo "web: skipped, there is no Node in PATH"
    exit 0
  fi
  if ! cmp -s web/package-lock.json web/node_modules/.headgate-lock; then
    (cd web && npm ci --no-audit --no-fund --loglevel=error)
    cp web/package-lock.json web/node_modules/.headgate-lock
  fi
}

# same fails if two folders differ, and says in what.
same() {
  diff -rq "$1" "$2" >&2 || {
    echo "error: $1 is not what its source gives" >&2
    echo "hint: run make web, and commit what it changes" >&2
    exit 1
  }
}

case ${1:-} in
  build)
    ready build
    (cd web && npm run --silent build -- --logLevel warn)
    ;;
  check)
    ready check
    (cd web && npm run --silent check && npm run --silent test)
    built=$(mktemp -d)
    trap 'rm -rf "$built"' EXIT
    (cd web && npm run --silent build -- --logLevel warn --outDir "$built")
    same "$dist" "$built"
    ;;
  *)
    sed -n '2,8p' "$0" >&2
    exit 2
    ;;
esac
