#!/usr/bin/env bash
# The long forms of suites, which scripts/test.sh has in short: test-long.sh [PART…]; without a part, all of them. Takes hours.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

part_fuzz() { # FUZZ_MINUTES of CPU for every parser of foreign input
  scripts/fuzz.sh "${FUZZ_MINUTES:-60}"
}

parts=(fuzz)
[ $# -gt 0 ] || set -- "${parts[@]}"
for part in "$@"; do
  printf '\n==> %s\n' "$part"
  "part_$part"
done
