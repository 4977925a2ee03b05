#!/usr/bin/env bash
# Makes sure that a Redis or Valkey server is there for the tests.
#
#   scripts/ensure-redis.sh
#
# HEADGATE_REDIS_BIN, redis-server or valkey-server in PATH cost nothing.
# Otherwise redis-server is installed with apt-get; its service is not started.
set -euo pipefail

if [ -n "${HEADGATE_REDIS_BIN:-}" ]; then
  command -v "$HEADGATE_REDIS_BIN" >/dev/null 2>&1 && exit 0
  echo "error: HEADGATE_REDIS_BIN=$HEADGATE_REDIS_BIN is not a program" >&2
  echo "hint: name the path of redis-server or valkey-server, or unset it" >&2
  exit 1
fi
for name in redis-server valkey-server; do
  command -v "$name" >/dev/null 2>&1 && exit 0
done
exec "$(dirname "$0")/ensure.sh" redis-server
