#!/bin/sh
# Starts two regions on this machine, each with a Redis and a server, and shows a line a
# second: how many searches pass in each, what one of them sees of the other, and the sum.
# After 2 seconds neither region can read the other any more, after 9 both can again:
#
#   examples/regions/run.sh
#
# The sum is that of one minute, by the clock: with little of it left, the script waits for
# the next. It needs redis-server, redis-cli, curl and headgate; HEADGATE names another binary. It
# uses the ports from PORT (17100) on, and ends what it started.
set -eu

headgate=${HEADGATE:-headgate}
port=${PORT:-17100}
rules=$(cd "$(dirname "$0")" && pwd)/rules
dir=$(mktemp -d)
started=
trap 'kill $started 2>/dev/null; wait; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM

cli() { # port, command
  at=$1
  shift
  redis-cli -p "$at" "$@" >/dev/null
}

redis() { # name, port
  redis-server --port "$2" --bind 127.0.0.1 --save "" --dir "$dir" --logfile "$dir/$1.redis.log" &
  started="$started $!"
  until cli "$2" ping 2>/dev/null; do sleep 0.1; done
  # The user for the other region, as docs/many/regions.md has it: it may only read.
  cli "$2" acl setuser headgate-reader on '>secret' resetkeys '~hg:{%regions}:news' '~hg:{%tcontrol}:*' \
    resetchannels -@all +xrange +get +hmget +hlen +zcard +zrangebyscore +zmscore +time +ping +hello
}

server() { # name, port of its Redis, name and port of the other, port of the server
  cat >"$dir/$1.yaml" <<EOF
store: redis://127.0.0.1:$2
rules: ["$rules"]
listen: {api: "127.0.0.1:$5", admin: "127.0.0.1:$(($5 + 1))", grpc: "off", resp: "off"}
regions: {name: $1, peers: {$3: "redis://headgate-reader:secret@127.0.0.1:$4"}}
EOF
  "$headgate" serve --config "$dir/$1.yaml" 2>"$dir/$1.log" &
  started="$started $!"
  until curl -sf "http://127.0.0.1:$5/readyz" >/dev/null; do sleep 0.1; done
}

# ask sends n searches of one tenant to a region and prints how many may pass.
ask() { # port, n
  curl -s "http://127.0.0.1:$1/v1/check?[1-$2]" -d '{"domain":"api","attributes":{"path":"/search","header:X-Tenant":"acme"}}' |
    grep -o '"allowed":true' | wc -l
}

# both lets both regions read each other, or ends that.
both() { # on or off
  for at in "$port" "$((port + 1))"; do
    cli "$at" acl setuser headgate-reader "$1"
    if [ "$1" = off ]; then cli "$at" client kill user headgate-reader; fi
  done
}

# sees prints what eu says about us: reachable, or cut.
sees() {
  "$headgate" regions --json --address "127.0.0.1:$((eu + 1))" | grep -o '"state":"[a-z]*"' | cut -d '"' -f 4
}

eu=$((port + 2)) us=$((port + 4))
redis eu "$port"
redis us "$((port + 1))"
server eu "$port" us "$((port + 1))" "$eu"
server us "$((port + 1))" eu "$port" "$us"

left=$((60 - $(date +%s) % 60))
if [ "$left" -lt 35 ]; then
  echo "The minute ends in $left seconds: waiting for the next."
  sleep "$left"
fi
minute=$(($(date +%s) / 60))
echo "Both regions share 600 searches a minute: 300 each to begin with."
echo "second  60 ask eu  10 ask us  together  eu says us is"
total=0 second=0
while [ "$second" -lt 16 ]; do
  second=$((second + 1))
  case $second in
    3) both off ;;
    10) both on ;;
  esac
  sleep "${PAUSE:-1}"
  a=$(ask "$eu" 60) b=$(ask "$us" 10)
  total=$((total + a + b))
  printf '%6d  %9d  %9d  %8d  %s\n' "$second" "$a" "$b" "$total" "$(sees)"
done
"$headgate" regions --address "127.0.0.1:$((eu + 1))"
if [ $(($(date +%s) / 60)) != "$minute" ]; then
  echo "$total passed, some of them in the next minute: run it again on a faster machine"
  exit
fi
over=$("$headgate" regions --json --address "127.0.0.1:$((eu + 1))" | grep -o '"rule":"search"[^]]*],"over":[0-9]*' | grep -o '[0-9]*$')
if [ "$total" -gt $((600 + over)) ]; then
  echo "error: $total passed, which is more than 600 and $over by rounding" >&2
  exit 1
fi
echo "$total passed, at most $((600 + over)) may"
