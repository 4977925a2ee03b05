#!/usr/bin/env bash
# Tries to get a Valkey server for the tests. Never fails: without it, tests use
# Redis alone (internal/testkit/redistest).
#
# Nothing is installed: the package is unpacked into the user's cache folder. Debian
# 12 has it in its backports only; their package list is read into a temporary
# folder, so that the system's own lists and sources do not change.
set -uo pipefail

cache=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/headgate/valkey
if command -v valkey-server >/dev/null 2>&1 || [ -x "$cache/usr/bin/valkey-server" ]; then exit 0; fi

log=$(mktemp) && work=$(mktemp -d) || exit 0
trap 'rm -rf "$log" "$work"' EXIT
give_up() {
  echo "ensure: no Valkey: $1; tests run without it" >&2
  tail -n 3 "$log" >&2
  exit 0
}
for tool in apt-get dpkg-deb; do
  command -v "$tool" >/dev/null 2>&1 || give_up "no $tool in PATH"
done
cd "$work" || exit 0
fetch() { timeout 60 apt-get "$@" download valkey-server valkey-tools >>"$log" 2>&1 </dev/null; }

# backports reads the package list of this release's backports from the system's
# mirror, and fetches from there.
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
