#!/usr/bin/env bash
# Tries to get a Valkey server to test with, and never fails: tests that find
# none do without (internal/testkit/redistest).
#
# Nothing is installed: the package is unpacked into the user's cache folder,
# beside whatever Redis there is. Debian 12 has it among its backports only,
# whose package list is read into a temporary folder; the system's own lists
# and sources are left as they are.
set -uo pipefail

cache=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/headgate/valkey
if command -v valkey-server >/dev/null 2>&1 || [ -x "$cache/usr/bin/valkey-server" ]; then exit 0; fi

log=$(mktemp) && work=$(mktemp -d) || exit 0
trap 'rm -rf "$log" "$work"' EXIT
give_up() {
  echo "ensure: no Valkey: $1; tests go on without it" >&2
  tail -n 3 "$log" >&2
  exit 0
}
for tool in apt-get dpkg-deb; do
  command -v "$tool" >/dev/null 2>&1 || give_up "there is no $tool"
done
cd "$work" || exit 0
fetch() { timeout 60 apt-get "$@" download valkey-server valkey-tools >>"$log" 2>&1 </dev/null; }

# backports reads the list of this release's backports, from the mirror that the
# system uses, and fetches from there.
backports() {
  local suite mirror
  suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")-backports
  mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE)' 'Created-By: Packages' 2>>"$log" |
    awk -v release="${suite%-backports}" '$2 == release { print $1; exit }')
  [ -n "$mirror" ] || return 1
  mkdir -p lists/partial archives/partial
  echo "deb $mirror $suite main" >sources.list
  local options=(
    -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work" -o "Dir::Cache::archives=$work/archives"
    -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o "APT::Sandbox::User=$(id -un)"
  )
  timeout 60 apt-get "${options[@]}" update >>"$log" 2>&1 </dev/null && fetch "${options[@]}"
}

fetch || backports || give_up "no package"
for package in ./*.deb; do
  dpkg-deb -x "$package" unpacked >>"$log" 2>&1 || give_up "$package cannot be unpacked"
done
unpacked/usr/bin/valkey-server --version >>"$log" 2>&1 || give_up "it does not run"
mkdir -p "$(dirname "$cache")" && rm -rf "$cache" && cp -r unpacked "$cache" || give_up "$cache cannot be written"
echo "ensure: Valkey is in $cache" >&2
