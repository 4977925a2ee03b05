#!/usr/bin/env bash
# Generates the Go code of api/ from its .proto files, with protoc and the plugins
# of tools/go.mod.
#
#   scripts/proto.sh            writes the code next to the .proto files
#   scripts/proto.sh check      fails if the code is out of date
#
# Any protoc from 3.15 on works; the version that it writes into the code is not
# compared. Without protoc, check does nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=${1:-write}
if ! command -v protoc >/dev/null 2>&1; then
  if [ "$mode" = check ]; then
    echo "proto: no protoc in PATH, nothing checked" >&2
    exit 0
  fi
  scripts/ensure.sh protoc
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for plugin in google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc; do
  (cd tools && go build -o "$work/" "$plugin")
done

mkdir "$work/out"
(cd api && find . -name '*.proto' | sed 's|^\./||' | sort | xargs protoc --proto_path=. \
  --plugin="$work/protoc-gen-go" --plugin="$work/protoc-gen-go-grpc" \
  --go_out="$work/out" --go_opt=paths=source_relative \
  --go-grpc_out="$work/out" --go-grpc_opt=paths=source_relative)

if [ "$mode" = write ]; then
  cp -r "$work/out/." api/
  exit 0
fi

failed=0
while read -r file; do
  if ! diff -u <(grep -v '^//.*protoc  *v' "api/$file" || true) <(grep -v '^//.*protoc  *v' "$work/out/$file"); then
    echo "error: api/$file is out of date" >&2
    failed=1
  fi
done < <(cd "$work/out" && find . -name '*.go' | sort)
if [ "$failed" = 1 ]; then
  echo "hint: run make proto" >&2
  exit 1
fi
