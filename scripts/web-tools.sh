# Shared by scripts/web.sh, scripts/site.sh and scripts/ensure-web.sh, which source it.

# least is the oldest Node that the packages of web/ support; newer is the one that
# is installed if the distribution's Node is older.
least=20.19.0
newer=22.23.3
cache=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/headgate/node

# prefer_cached puts a Node that scripts/ensure-web.sh installed first in PATH.
prefer_cached() {
  if [ -x "$cache/bin/node" ]; then PATH=$cache/bin:$PATH; fi
}
prefer_cached

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

# skip says why nothing is done; with HEADGATE_REQUIRE_WEB that is a failure.
skip() {
  if [ -n "${HEADGATE_REQUIRE_WEB:-}" ]; then
    echo "error: $1" >&2
    exit 1
  fi
  echo "web: skipped, $1"
  exit 0
}

# need says what is missing, and fails if the work must be done, else skips it.
need() {
  if [ "$1" != must ]; then skip "$2"; fi
  echo "error: $2" >&2
  exit 1
}

# ready installs the packages of a folder's package-lock.json, if they are missing:
# ready must web, or ready may web.
ready() {
  scripts/ensure-web.sh node
  prefer_cached
  local wants="Node $least or newer with npm is needed"
  command -v node >/dev/null 2>&1 || need "$1" "no Node in PATH: $wants"
  command -v npm >/dev/null 2>&1 || need "$1" "no npm in PATH: $wants"
  node_is_new || need "$1" "Node $(node_version) is too old: $wants"
  if ! cmp -s "$2/package-lock.json" "$2/node_modules/.headgate-lock"; then
    (cd "$2" && timeout 300 npm ci --fetch-retries 1 --no-audit --no-fund --loglevel=error) || need "$1" "npm cannot fetch the packages of $2"
    cp "$2/package-lock.json" "$2/node_modules/.headgate-lock"
  fi
}

# find_browser finds a Chromium and checks that it starts: some commands of that
# name only print where to get it, and some machines do not let it start.
find_browser() {
  scripts/ensure-web.sh chromium
  CHROMIUM=$(browser)
  export CHROMIUM
  [ -n "$CHROMIUM" ] || skip "no Chromium in PATH"
  local flags=(--headless) page
  if [ "$(id -u)" -eq 0 ]; then flags+=(--no-sandbox); fi
  page=$(timeout 120 "$CHROMIUM" "${flags[@]}" --dump-dom about:blank 2>/dev/null </dev/null || true)
  [[ $page == *"<html>"* ]] || skip "$CHROMIUM does not start"
}
