#!/usr/bin/env bash
# Runs every harness of fuzz/ under libFuzzer for so many CPU minutes each, on the committed corpora: fuzz.sh [MINUTES [NAME…]].
# What crashes is kept in fuzz/artifacts; new finds stay in fuzz/target/found, and `fuzz.sh merge [NAME…]` puts some of them
# that reach more into fuzz/corpus. JOBS harnesses run at a time (one a processor). Needs a C++ compiler.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../fuzz"

host=$(rustc -vV | sed -n 's/^host: //p')
program=target/$host/release/imagelet-fuzz
# The flags are in fuzz/.cargo/config.toml; with a target given they are not for build scripts and macros.
cargo build --release --locked --quiet --target "$host"

names() { FUZZ='' "$program" -artifact_prefix=target/names- 2>/dev/null; } # libFuzzer takes an end for a crash, and keeps its input

longest() { # of a corpus: what libFuzzer makes longer than that is seldom worth it
  case $1 in
    tar | tar-differential | layer | archive) echo 16384 ;;
    erofs) echo 40960 ;;
    gzip | zstd) echo 8192 ;;
    *) echo 4096 ;;
  esac
}

if [ "${1:-}" = merge ]; then
  shift
  [ $# -gt 0 ] || set -- $(names)
  for name in "$@"; do
    new=$(mktemp -d)
    mkdir -p "target/found/$name"
    cp "corpus/$name/"* "$new"
    # Adds what reaches more than all that is there.
    FUZZ=$name "$program" -merge=1 -max_len="$(longest "$name")" -rss_limit_mb=4096 "$new" "target/found/$name" 2>/dev/null
    # Their names are digests: the first of them are as good as any.
    added=0 bytes=0
    for file in "$new"/*; do
      [ ! -e "corpus/$name/${file##*/}" ] || continue
      bytes=$((bytes + $(stat -c %s "$file"))) added=$((added + 1))
      [ "$added" -le "${MOST_FILES:-50}" ] && [ "$bytes" -le "${MOST_BYTES:-40000}" ] || break
      cp "$file" "corpus/$name/"
    done
    rm -rf "$new"
  done
  exit
fi

spent() { # sets `centis` to the hundredths of a second of CPU that the ended children of this shell took
  times >"$log.times" # not behind a pipe: that would be another shell
  centis=$(awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, part, /[ms]/); sum += part[1] * 60 + part[2] } printf "%d", sum * 100 }' "$log.times")
}

harness() { # harness NAME SECONDS   fuzzes for so many seconds of CPU, however long that takes, and prints a line of figures
  local name=$1 log=target/found/$1.log result=0 executions=0 rest=$2 centis from last
  mkdir -p "target/found/$name"
  spent
  from=$centis
  # libFuzzer counts seconds of the clock: on a busy machine it is called again for what is missing.
  while [ "$rest" -gt 0 ] && [ "$result" = 0 ]; do
    FUZZ=$name "$program" -max_total_time="$rest" -max_len="$(longest "$name")" -timeout="${UNIT_SECONDS:-60}" -rss_limit_mb=4096 \
      -print_final_stats=1 -artifact_prefix="artifacts/$name-" "target/found/$name" "corpus/$name" >"$log" 2>&1 || result=1
    executions=$((executions + $(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | grep . || echo 0)))
    spent
    rest=$(($2 - (centis - from) / 100))
  done
  last=$(grep -E 'cov: [0-9]+' "$log" | tail -1 || true)
  field() { sed -n "s/.*$1: \([0-9]*\).*/\1/p" <<<"$last"; }
  printf '%-20s %9d.%d %12s %9s %9s %9s %8s\n' "$name" $(((centis - from) / 6000)) $(((centis - from) / 600 % 10)) "$executions" "$(field cov)" \
    "$(field ft)" "$(field corp)" "$(find artifacts -regex "artifacts/$name-\(crash\|timeout\|oom\|leak\)-.*" | wc -l)"
  return "$result"
}

minutes=${1:-60}
shift || true
[ $# -gt 0 ] || set -- $(names)
mkdir -p target/found artifacts
printf '%-20s %11s %12s %9s %9s %9s %8s\n' harness 'CPU minutes' executions edges features corpus crashes
failed=0 running=0
for name in "$@"; do
  if [ "$running" -ge "${JOBS:-$(nproc)}" ]; then
    wait -n || failed=1
    running=$((running - 1))
  fi
  harness "$name" $((minutes * 60)) &
  running=$((running + 1))
done
while [ "$running" -gt 0 ]; do
  wait -n || failed=1
  running=$((running - 1))
done
exit $failed
