#!/usr/bin/env bash
# Replaces the tables of docs/accuracy.md, which stand behind its last line that
# begins with <!--, by what headgate lab measures. It takes some minutes.
set -euo pipefail
bin=${1:-bin/headgate}
page=docs/accuracy.md
new=$(mktemp)
trap 'rm -f "$new"' EXIT
sed '/^<!-- tables/q' "$page" >"$new"
echo >>"$new"
"$bin" lab >>"$new"
# Without the empty line at the end.
sed -e '${/^$/d}' "$new" >"$page"
