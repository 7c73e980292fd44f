#!/usr/bin/env bash
# Pulls the Debian root file system image with imagelet and with containerd's ctr in turn, and prints medians, ratio and peak memory.
# usage: bench.sh [ROUNDS]   (5 by default). Everything lies on a journaled ext4 of its own, over a loop device.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/bench-lib.sh

rounds=${1:-5}
[ "$(id -u)" -eq 0 ] || { echo "bench: needs root: it mounts a disk and starts containerd" >&2; exit 77; }
scripts/prerequisites.sh
tar=$(scripts/debian-rootfs.sh)
echo "bench: building imagelet (release)"
cargo build -q --release --locked -p imagelet
imagelet=$PWD/target/release/imagelet

work=$(mktemp -d "$PWD/target/bench.XXXXXX")
disk=$work/disk
pids=()
finish() {
  local result=$?
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  # What containerd may have left mounted lies below the disk.
  while read -r mounted; do umount -l "$mounted" || true; done < <(awk -v d="$disk" '$2 ~ "^" d { print $2 }' /proc/mounts | sort -r)
  rm -rf "$work"
  exit "$result"
}
trap finish EXIT
trap 'exit 130' INT TERM

# A disk with a journal: without one, ext4 does not reuse fresh inodes, and every round is slower than the last.
truncate -s 12G "$work/disk.img"
mkfs.ext4 -q -m 0 "$work/disk.img"
mkdir "$disk"
mount -o loop "$work/disk.img" "$disk"

start_registry
name=$registry/bench/debian:1

echo "bench: making the image"
umoci init --layout "$work/layout"
umoci new --image "$work/layout:debian"
umoci raw add-layer --image "$work/layout:debian" "$tar"
skopeo copy -q --dest-tls-verify=false "oci:$work/layout:debian" "docker://$name"
rm -rf "$work/layout"

mkdir -p "$work/certs.d/$registry"
echo "server = \"http://$registry\"" >"$work/certs.d/$registry/hosts.toml"
cat >"$work/containerd.toml" <<TOML
version = 2
root = "$disk/containerd"
state = "$work/state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.opt"]
[grpc]
  address = "$work/c.sock"
TOML
# Unpackers that happen to be installed must not change the baseline from machine to machine.
CONTAINERD_DISABLE_PIGZ=1 CONTAINERD_DISABLE_IGZIP=1 containerd -c "$work/containerd.toml" >"$work/containerd.log" 2>&1 </dev/null &
containerd_pid=$!
pids+=("$containerd_pid")
line_of "$work/containerd.log" 'successfully booted' "$containerd_pid" >/dev/null
ctr() { command ctr --address "$work/c.sock" "$@"; }

# wall FILE COMMAND…   runs it and appends its wall seconds; the program's own peak memory in KiB goes to FILE.rss
wall() {
  local file=$1
  shift
  # Nothing of an earlier round is still being written, and the registry's blobs are in memory.
  sync
  cat "$disk"/registry/docker/registry/v2/blobs/sha256/*/*/data >/dev/null
  /usr/bin/time -o "$file.last" -f '%e %M' "$@" </dev/null >/dev/null 2>"$file.log" || { cat "$file.log" >&2; return 1; }
  cut -d' ' -f1 "$file.last" >>"$file"
  cut -d' ' -f2 "$file.last" >>"$file.rss"
}

echo "bench: $rounds rounds each, in turn; load average $(cut -d' ' -f1-3 /proc/loadavg)"
for round in $(seq "$rounds"); do
  rm -rf "$disk/store"
  wall "$work/imagelet" "$imagelet" --root "$disk/store" pull "$name"

  ctr images rm --sync "$name" >/dev/null 2>&1 || true
  ctr content prune references >/dev/null 2>&1 || true
  wall "$work/ctr" ctr --address "$work/c.sock" images pull --hosts-dir "$work/certs.d" "$name"
  start=$(date +%s.%N); sync -f "$disk"; end=$(date +%s.%N)
  echo "$end $start" | awk '{ printf "%.3f\n", $1 - $2 }' >>"$work/sync"
  printf '  round %d: imagelet %s s, ctr %s s (a sync afterwards: %s s)\n' "$round" "$(tail -n1 "$work/imagelet")" "$(tail -n1 "$work/ctr")" "$(tail -n1 "$work/sync")"
done

median() { sort -n "$1" | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
ours=$(median "$work/imagelet")
theirs=$(median "$work/ctr")
flush=$(median "$work/sync")
ours_rss=$(sort -n "$work/imagelet.rss" | tail -n1)
client_rss=$(sort -n "$work/ctr.rss" | tail -n1)
daemon_rss=$(awk '/^VmHWM:/ { print $2 }' "/proc/$containerd_pid/status")

echo
echo "Debian root file system, $(stat -c %s "$tar" | awk '{ printf "%.0f", $1 / 1e6 }') MB unpacked, cold store, warm registry, loopback; $(nproc) cores, load $(cut -d' ' -f1-3 /proc/loadavg)"
printf '%-28s %10s %12s\n' '' 'wall (s)' 'peak (MB)'
printf '%-28s %10s %12s\n' 'imagelet pull (durable)' "$ours" "$(echo "$ours_rss" | awk '{ printf "%.0f", $1 / 1024 }')"
printf '%-28s %10s %12s\n' 'ctr images pull' "$theirs" "$(echo "$client_rss $daemon_rss" | awk '{ printf "%.0f + %.0f", $1 / 1024, $2 / 1024 }')"
printf '%-28s %10s\n' 'a sync after it' "$flush"
echo "$ours $theirs $flush" | awk '{ printf "ratio ctr / imagelet: %.2f; with the sync that makes it durable as well: %.2f\n", $2 / $1, ($2 + $3) / $1 }'
