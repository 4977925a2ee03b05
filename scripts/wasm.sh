#!/usr/bin/env bash
# Compiles Headgate's algorithms for the playground page, to
# internal/door/admin/dashboard/playground/headgate.wasm.gz, which the binary embeds.
# It needs Go alone, and is quick when nothing has changed. The result is not
# committed: a binary that is built without it has no playground, and says so.
set -euo pipefail
cd "$(dirname "$0")/.."
into=internal/door/admin/dashboard/playground
made=$(mktemp -d "$into/.made.XXXXXX")
trap 'rm -rf "$made"' EXIT
GOFLAGS='' GOOS=wasip1 GOARCH=wasm CGO_ENABLED=0 "${GO:-go}" build -trimpath -buildvcs=false -buildmode=c-shared \
  -ldflags='-s -w -buildid=' -o "$made/headgate.wasm" ./web/wasm
gzip -9nc "$made/headgate.wasm" >"$made/headgate.wasm.gz"
# The same bytes stay the same file, so that the binary is not linked again.
cmp -s "$made/headgate.wasm.gz" "$into/headgate.wasm.gz" || mv "$made/headgate.wasm.gz" "$into/headgate.wasm.gz"
