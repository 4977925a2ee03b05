#!/usr/bin/env bash
# Tries to install what the test of the clients needs to install the client for Python
# as users do, and to check its types (Debian, as root). Never fails: the test reports
# what is missing.
set -uo pipefail
command -v mypy >/dev/null 2>&1 && /usr/bin/python3 -c 'import setuptools, wheel' 2>/dev/null && /usr/bin/python3 -c 'import pip' 2>/dev/null && exit 0
[ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1 || exit 0
echo "ensure: installing pip, setuptools, wheel and mypy" >&2
DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq --no-install-recommends python3-pip python3-setuptools python3-wheel mypy >/dev/null 2>&1 </dev/null
exit 0
