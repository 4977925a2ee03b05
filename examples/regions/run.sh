#!/bin/sh
# Starts two regions on this machine, each with a Redis and a server, sends requests to
# one of them, and shows what they share:
#
#   examples/regions/run.sh
#
# It needs redis-server and headgate; HEADGATE names another binary. It uses the ports
# from PORT (17100) on, and ends what it started.
set -eu

headgate=${HEADGATE:-headgate}
port=${PORT:-17100}
rules=$(cd "$(dirname "$0")" && pwd)/rules
dir=$(mktemp -d)
started=
trap 'kill $started 2>/dev/null; wait; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM

redis() { # name, port
  redis-server --port "$2" --bind 127.0.0.1 --save "" --dir "$dir" --logfile "$dir/$1.redis.log" &
  started="$started $!"
}

server() { # name, port of its Redis, name and port of the other, port of the server
  cat >"$dir/$1.yaml" <<EOF
store: redis://127.0.0.1:$2
rules: ["$rules"]
listen: {api: "127.0.0.1:$5", admin: "127.0.0.1:$(($5 + 1))", grpc: "off", resp: "off"}
regions: {name: $1, peers: {$3: "redis://127.0.0.1:$4"}}
EOF
  "$headgate" serve --config "$dir/$1.yaml" 2>"$dir/$1.log" &
  started="$started $!"
  until curl -sf "http://127.0.0.1:$5/readyz" >/dev/null; do sleep 0.1; done
}

# ask sends n searches of one tenant to a region and prints how many may pass.
ask() { # port, n
  n=0
  while [ "$n" -lt "$2" ]; do
    n=$((n + 1))
    curl -s "http://127.0.0.1:$1/v1/check" -d '{"domain":"api","attributes":{"path":"/search","header:X-Tenant":"acme"}}'
    echo
  done | grep -c '"allowed":true' || true
}

eu=$((port + 2)) us=$((port + 4))
redis eu "$port"
redis us "$((port + 1))"
server eu "$port" us "$((port + 1))" "$eu"
server us "$((port + 1))" eu "$port" "$us"

echo "Both regions share 600 searches a minute: 300 each to begin with."
total=0
for _ in 1 2 3 4 5 6; do
  passed=$(ask "$eu" 120)
  total=$((total + passed))
  echo "eu: $passed of 120 pass, $total so far"
done
passed=$(ask "$us" 20)
total=$((total + passed))
echo "us: $passed of 20 pass, $total in both regions"
"$headgate" regions --address "127.0.0.1:$((eu + 1))"
