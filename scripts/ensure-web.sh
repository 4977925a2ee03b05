#!/usr/bin/env bash
# Tries to install the tools that build and test the web pages of the admin door.
# Never fails: scripts/web.sh reports what is missing.
#
#   scripts/ensure-web.sh node       Node with npm
#   scripts/ensure-web.sh chromium   a browser
#
# As root, installs Debian packages. If Debian's Node is too old, npm unpacks a
# newer one into the user's cache folder.
set -uo pipefail
. "$(dirname "$0")/web-tools.sh"

# Errors are printed and otherwise ignored: the caller checks what is there.
install() {
  command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" -eq 0 ] || return 0
  echo "ensure: installing $*" >&2
  local log
  log=$(mktemp) || return 0
  export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
  timeout 300 apt-get install -y -qq --no-install-recommends "$@" >"$log" 2>&1 </dev/null ||
    { timeout 60 apt-get update -qq && timeout 300 apt-get install -y -qq --no-install-recommends "$@"; } >"$log" 2>&1 </dev/null ||
    tail -n 3 "$log" >&2
  rm -f "$log"
}

# newer_node installs a newer Node with npm.
newer_node() {
  local arch
  case $(uname -sm) in
    "Linux x86_64") arch=x64 ;;
    "Linux aarch64") arch=arm64 ;;
    *) return 0 ;;
  esac
  echo "ensure: installing Node $newer into $cache" >&2
  timeout 120 npm install --prefix "$cache" --no-save --no-audit --no-fund --ignore-scripts --fetch-retries 1 --loglevel=error \
    "node-linux-$arch@$newer" >&2 </dev/null || return 0
  mkdir -p "$cache/bin" && ln -sf "../node_modules/node-linux-$arch/bin/node" "$cache/bin/node"
}

case ${1:-} in
  node)
    command -v node >/dev/null 2>&1 || install nodejs
    command -v npm >/dev/null 2>&1 || install npm
    if command -v npm >/dev/null 2>&1 && ! node_is_new; then newer_node; fi
    ;;
  chromium)
    [ -n "$(browser)" ] || install chromium
    ;;
  *)
    sed -n '2,9p' "$0" >&2
    exit 2
    ;;
esac
exit 0
