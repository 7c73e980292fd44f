#!/usr/bin/env bash
# Runs every harness of fuzz/ under libFuzzer for so many CPU minutes each, on the committed corpora: fuzz.sh [MINUTES [NAME…]].
# What crashes is kept in fuzz/artifacts; new finds stay in fuzz/target/found, and `fuzz.sh merge` puts the smallest of them that
# reach as much into fuzz/corpus. Needs a C++ compiler.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../fuzz"

host=$(rustc -vV | sed -n 's/^host: //p')
program=target/$host/release/imagelet-fuzz
# The flags are in fuzz/.cargo/config.toml; with a target given they are not for build scripts and macros.
cargo build --release --locked --quiet --target "$host"

names() { FUZZ='' "$program" 2>/dev/null; }

longest() { # of a corpus: what libFuzzer makes longer than that is seldom worth it
  case $1 in
    tar | tar-differential | layer | archive) echo 16384 ;;
    erofs) echo 40960 ;;
    gzip | zstd) echo 8192 ;;
    *) echo 4096 ;;
  esac
}

if [ "${1:-}" = merge ]; then
  for name in $(names); do
    new=$(mktemp -d)
    FUZZ=$name "$program" -merge=1 -max_len="$(longest "$name")" -rss_limit_mb=4096 "$new" "corpus/$name" "target/found/$name" 2>/dev/null
    # The largest add little: what does not fit is left out.
    rm -rf "corpus/$name" && mkdir -p "corpus/$name"
    ls -Sr "$new" | while read -r file; do
      [ "$(du -sb "corpus/$name" | cut -f1)" -lt "${MOST:-40000}" ] && cp "$new/$file" "corpus/$name/"
    done || true
    rm -rf "$new"
  done
  exit
fi

minutes=${1:-60}
shift || true
[ $# -gt 0 ] || set -- $(names)
failed=0
printf '%-20s %12s %9s %9s %9s %8s\n' harness executions edges features corpus crashes
for name in "$@"; do
  mkdir -p "target/found/$name" artifacts
  log=target/found/$name.log
  # Seconds of CPU of one thread: nothing here waits.
  FUZZ=$name "$program" -max_total_time=$((minutes * 60)) -max_len="$(longest "$name")" -timeout=20 -rss_limit_mb=4096 \
    -print_final_stats=1 -artifact_prefix="artifacts/$name-" "target/found/$name" "corpus/$name" >"$log" 2>&1 || failed=1
  last=$(grep -E 'cov: [0-9]+' "$log" | tail -1)
  field() { sed -n "s/.*$1: \([0-9]*\).*/\1/p" <<<"$last"; }
  printf '%-20s %12s %9s %9s %9s %8s\n' "$name" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
    "$(field cov)" "$(field ft)" "$(sed -n 's#.*corp: \([0-9]*\).*#\1#p' <<<"$last")" "$(find artifacts -name "$name-*" | wc -l)"
done
exit $failed
