#!/usr/bin/env bash
# Tries to get what the test of the client for Java needs: a JDK, which is installed, and
# the libraries of Tomcat 10, which are unpacked into the user's cache folder. Never
# fails: the test reports what is missing.
set -uo pipefail
if ! command -v javac >/dev/null 2>&1; then
  "$(dirname "$0")/ensure.sh" javac || exit 0
fi
cache=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/headgate/tomcat
for root in "" "$cache"; do
  [ -e "$root/usr/share/java/tomcat10-catalina.jar" ] && exit 0
done

log=$(mktemp) && work=$(mktemp -d) || exit 0
trap 'rm -rf "$log" "$work"' EXIT
give_up() {
  echo "ensure: no Tomcat: $1; the client for Java is not tested" >&2
  tail -n 3 "$log" >&2
  exit 0
}
for tool in apt-get dpkg-deb; do
  command -v "$tool" >/dev/null 2>&1 || give_up "no $tool in PATH"
done
cd "$work" || exit 0
fetch() { timeout 60 apt-get download libtomcat10-java >>"$log" 2>&1 </dev/null; }
refresh() { timeout 60 apt-get update >>"$log" 2>&1 </dev/null; }
fetch || { refresh && fetch; } || give_up "no package"
dpkg-deb -x ./*.deb unpacked >>"$log" 2>&1 || give_up "the package cannot be unpacked"
mkdir -p "$(dirname "$cache")" && rm -rf "$cache" && cp -r unpacked "$cache" || give_up "$cache cannot be written"
echo "ensure: Tomcat is in $cache" >&2
