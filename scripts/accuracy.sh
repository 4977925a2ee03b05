#!/usr/bin/env bash
# Replaces the tables of docs/accuracy.md, which follow its line <!-- tables …,
# with what cmd/lab of benchmarks measures. It takes some minutes.
set -euo pipefail
page=docs/accuracy.md
new=$(mktemp)
trap 'rm -f "$new"' EXIT
sed '/^<!-- tables/q' "$page" >"$new"
echo >>"$new"
(cd benchmarks && "${GO:-go}" run ./cmd/lab) >>"$new"
# Without the empty line at the end.
sed -e '${/^$/d}' "$new" >"$page"
