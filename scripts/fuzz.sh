#!/usr/bin/env bash
# Runs all fuzz targets of the module for some time each, one after the other.
#
#   scripts/fuzz.sh [TIME] [PACKAGE...]      TIME as in -fuzztime, 10s by default
set -euo pipefail
cd "$(dirname "$0")/.."

time=${1:-10s}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- ./...

found=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for package in $(go list "$@"); do
  listed=$(go test -list '^Fuzz' "$package")
  for target in $(grep '^Fuzz' <<<"$listed" || true); do
    found=$((found + 1))
    echo "== $package $target" >&2
    # Without this limit, go test spends up to a minute on minimizing each find.
    if go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1s "$package" 2>&1 | tee "$log"; then
      continue
    fi
    # go test also fails when its time runs out while it minimizes an input. That is
    # no finding: a failing input is always written to a file.
    grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input written' "$log"
  done
done
[ "$found" -gt 0 ] || echo "no fuzz target in $*" >&2
