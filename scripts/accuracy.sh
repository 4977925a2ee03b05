#!/usr/bin/env bash
# Measures the tables of docs/internals/accuracy.md again with benchmarks/cmd/lab and replaces
# everything after the line that starts with <!-- tables. Takes some minutes.
set -euo pipefail
page=docs/internals/accuracy.md
new=$(mktemp)
trap 'rm -f "$new"' EXIT
sed '/^<!-- tables/q' "$page" >"$new"
echo >>"$new"
(cd benchmarks && "${GO:-go}" run ./cmd/lab) >>"$new"
# Drop the empty line at the end.
sed -e '${/^$/d}' "$new" >"$page"
