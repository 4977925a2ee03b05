#!/usr/bin/env bash
# Makes sure that the tests have a Redis or Valkey server.
#
#   scripts/ensure-redis.sh
#
# Does nothing if HEADGATE_REDIS_BIN is set or redis-server or valkey-server is in
# PATH. Otherwise installs redis-server with apt-get, without starting its service.
set -euo pipefail

if [ -n "${HEADGATE_REDIS_BIN:-}" ]; then
  command -v "$HEADGATE_REDIS_BIN" >/dev/null 2>&1 && exit 0
  echo "error: HEADGATE_REDIS_BIN=$HEADGATE_REDIS_BIN is not a program" >&2
  echo "hint: set it to the path of redis-server or valkey-server, or unset it" >&2
  exit 1
fi
for name in redis-server valkey-server; do
  command -v "$name" >/dev/null 2>&1 && exit 0
done
exec "$(dirname "$0")/ensure.sh" redis-server
