#!/usr/bin/env bash
# What an agent costs that only serves: the time from its start to its readiness with 1,000 images in its store, CPU and memory while
# nothing happens, and how soon the status page and /metrics answer, while nothing happens and while an image is pulled.
# usage: bench-agent.sh [ROUNDS [IDLE_SECONDS]]   (11 starts and 60 seconds by default). BENCH_IMAGELET=FILE for a program that is
# there already, BENCH_IMAGES=N for another number than 1,000. On a disk with a journal.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/bench-lib.sh
. scripts/bench-node-lib.sh
command -v python3 >/dev/null && command -v docker-registry >/dev/null || scripts/prerequisites.sh --bench
build_imagelet bench-agent
rounds=${1:-11}
idle=${2:-60}
need_node bench-agent
store=$disk/imagelet

start_registry
echo "bench-agent: making the images"
scripts/agent-figures.py images "$work/many" "${BENCH_IMAGES:-1000}"
"$imagelet" --root "$store" --progress none -q import "$work/many" >/dev/null
rm -rf "$work/many"
# Four layers: the programs and libraries of this machine, each with 128 MB that do not compress.
umoci init --layout "$work/large"
umoci new --image "$work/large:1"
for part in bin lib share sbin; do
  mkdir -p "$work/part/usr/random"
  cp -a "/usr/$part" "$work/part/usr/"
  for file in 1 2 3 4; do head -c 32M /dev/urandom >"$work/part/usr/random/$part-$file"; done
  tar -C "$work/part" --sort=name --numeric-owner -cf "$work/part.tar" .
  umoci raw add-layer --image "$work/large:1" "$work/part.tar"
  rm -rf "$work/part" "$work/part.tar"
done
skopeo copy -q --dest-tls-verify=false "oci:$work/large:1" "docker://$registry/bench/large:1"
rm -rf "$work/large"

echo "bench-agent: $("$imagelet" --version), $("$imagelet" --root "$store" images -q | wc -l) images; load average $(cut -d' ' -f1-3 /proc/loadavg)"
scripts/agent-figures.py measure "$imagelet" "$store" "$work" "$registry/bench/large:1" "$rounds" "$idle"
