#!/usr/bin/env bash
# Runs every fuzz target of the module for a while, one after the other.
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
    # Without the bound, up to a minute goes into making each find smaller.
    if go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1s "$package" 2>&1 | tee "$log"; then
      continue
    fi
    # Out of time while it made a find smaller, go test fails and has found
    # nothing: an input that fails is always written down.
    grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input written' "$log"
  done
done
[ "$found" -gt 0 ] || echo "there is no fuzz target in $*" >&2
