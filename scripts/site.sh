#!/usr/bin/env bash
# Builds and tests the documentation site: the pages of docs/ with search, and the
# playground. The source of everything else is in site/; nothing built is committed.
#
#   scripts/site.sh build   builds bin/site; SITE_BASE=/headgate/ if it is served there
#   scripts/site.sh test    builds it and tests it in Chromium
#
# test tries to install what is missing (scripts/ensure-web.sh). Without Node, its
# packages or Chromium it prints a note and succeeds, unless HEADGATE_REQUIRE_WEB is set.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/web-tools.sh
. scripts/web-tools.sh

build() {
  scripts/web.sh static
  (cd site && npm run --silent build)
}

case ${1:-} in
  build)
    ready must site
    build
    echo "site: bin/site/index.html"
    ;;
  test)
    ready may site
    ready may web
    # The tools of web/ check this folder too.
    (cd site && ../web/node_modules/.bin/tsc && ../web/node_modules/.bin/biome ci --error-on-warnings .)
    (cd site && npm run --silent test)
    build
    find_browser
    (cd site && npm run --silent e2e)
    ;;
  *)
    sed -n '2,9p' "$0" >&2
    exit 2
    ;;
esac
