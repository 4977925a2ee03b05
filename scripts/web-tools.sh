# Shared by scripts/web.sh and scripts/ensure-web.sh, which source it.

# least is the oldest Node that the packages of web/ support; newer is the one that
# is installed if the distribution's Node is older.
least=20.19.0
newer=22.23.3
cache=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/headgate/node
if [ -x "$cache/bin/node" ]; then PATH=$cache/bin:$PATH; fi

# node_version prints the version of the Node in PATH, or nothing.
node_version() { node --version 2>/dev/null | tr -d v; }

# node_is_new reports whether it is new enough.
node_is_new() {
  local is
  is=$(node_version)
  [ -n "$is" ] && [ "$(printf '%s\n' "$least" "$is" | sort -V | head -n 1)" = "$least" ]
}

# browser prints the path of a Chromium: CHROMIUM, or one of the usual names in PATH.
browser() {
  local name
  for name in ${CHROMIUM:+"$CHROMIUM"} chromium chromium-browser google-chrome; do
    if command -v "$name" 2>/dev/null; then return 0; fi
  done
  return 0
}
