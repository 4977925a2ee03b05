#!/usr/bin/env bash
# Installs the commands named as arguments if they are missing.
#
#   scripts/ensure.sh gcc wrk redis-server
#
# As root, installs missing commands with apt-get; otherwise prints what to install
# and fails. The package lists are refreshed once, and only if a package cannot be
# installed without that. valkey-server and promtool are optional: they are
# unpacked without installing them, or skipped.
set -euo pipefail

# package_of prints the Debian package that holds a command.
package_of() {
  case $1 in
    redis-cli | redis-benchmark) echo redis-tools ;;
    nginx) echo nginx-light ;;
    h2load) echo nghttp2-client ;;
    ab) echo apache2-utils ;;
    protoc) echo protobuf-compiler ;;
    php) echo php-cli ;;
    g++) echo g++ ;;
    javac) echo default-jdk-headless ;;
    systemd-analyze) echo systemd ;;
    *) echo "$1" ;;
  esac
}

missing=() optional=()
for name in "$@"; do
  case $name in
    valkey-server | promtool) optional+=("${name%-server}") ;;
    *) command -v "$name" >/dev/null 2>&1 || missing+=("$name") ;;
  esac
done
# Last, because Valkey uses a library that Redis installs.
unpack() { for name in "${optional[@]}"; do "$(dirname "$0")/ensure-$name.sh"; done; }
[ ${#missing[@]} -gt 0 ] || { unpack && exit 0; }

for name in "${missing[@]}"; do
  if [ "$name" = go ]; then
    echo "error: no Go in PATH" >&2
    echo "hint: install Go 1.26 or newer from https://go.dev/dl/" >&2
    exit 1
  fi
done

packages=()
for name in "${missing[@]}"; do packages+=("$(package_of "$name")"); done

if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" -ne 0 ]; then
  echo "error: missing: ${missing[*]}" >&2
  echo "hint: install them; on Debian and Ubuntu: sudo apt-get install ${packages[*]}" >&2
  exit 1
fi

echo "ensure: installing ${packages[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
# Another installation that runs is waited for.
install() { apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=600 "${packages[@]}" </dev/null; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# RUNLEVEL=1 keeps a package's service from starting.
export RUNLEVEL=1
if ! install >"$log" 2>&1; then
  if ! { apt-get update -qq </dev/null && install; } >"$log" 2>&1; then
    cat "$log" >&2
    echo "error: could not install ${packages[*]}" >&2
    exit 1
  fi
fi

# Tests start their own servers on their own addresses.
if [ -d /run/systemd/system ]; then
  for name in "${missing[@]}"; do
    case $name in
      nginx | caddy) systemctl disable --quiet --now "$name" || true ;;
    esac
  done
fi

for name in "${missing[@]}"; do
  command -v "$name" >/dev/null 2>&1 || {
    echo "error: $name is still missing after installing ${packages[*]}" >&2
    exit 1
  }
done
unpack
