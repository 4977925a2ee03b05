#!/usr/bin/env bash
# Fails if a committed file is larger than 1 MB. Build output does not belong in the
# repository; if a large file has to be there, list it below with the reason.
set -euo pipefail
cd "$(dirname "$0")/.."

allowed=() # path

large=$(git ls-tree -r -l HEAD | awk '$4 > 1000000 {print $4 "\t" $5}' FS='[ \t]+')
while IFS=$'\t' read -r size path; do
  [ -n "$path" ] || continue
  for name in ${allowed[@]+"${allowed[@]}"}; do [ "$name" = "$path" ] && continue 2; done
  echo "error: $path has $size bytes; the limit for committed files is 1 MB" >&2
  echo "hint: git rm --cached '$path' and add it to .gitignore, or list it in scripts/sizes.sh with the reason" >&2
  failed=1
done <<<"$large"
exit "${failed:-0}"
