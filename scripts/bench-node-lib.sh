#!/usr/bin/env bash
# What bench-pods.sh and bench-cluster.sh share: a journaled disk, two images, containerd with a network of pods, the end of all of it, and
# figures of processes. Sourced after bench-lib.sh; `need_node` comes first.
set -euo pipefail

imagelet=${BENCH_IMAGELET:-$PWD/target/release/imagelet}

build_imagelet() { # build_imagelet PROGRAM   where BENCH_IMAGELET names none
  [ -z "${BENCH_IMAGELET:-}" ] || return 0
  echo "$1: building imagelet (release)"
  cargo build -q --release --locked -p imagelet
}

need_node() { # need_node PROGRAM   makes $work and $disk, and undoes at the end what is done here
  [ "$(id -u)" -eq 0 ] || { echo "$1: needs root: it mounts a disk, starts containerd and runs pods" >&2; exit 77; }
  # Sockets have short paths, and nothing of a pod lies in the tree of the sources.
  work=$(mktemp -d "/tmp/$1.XXXXXX")
  disk=$work/disk
  bridge=ibench$$
  bridge=${bridge:0:15}
  cgroup=/imagelet-bench-$$
  pids=()
  agent=
  trap finish EXIT
  trap 'exit 130' INT TERM
  # A disk with a journal: without one, ext4 does not reuse fresh inodes, and every round is slower than the last.
  truncate -s 8G "$work/disk.img"
  mkfs.ext4 -q -m 0 "$work/disk.img"
  mkdir "$disk"
  mount -o loop "$work/disk.img" "$disk"
}

finish() {
  local result=$?
  if [ -n "$agent" ]; then kill "$agent" 2>/dev/null || true; wait "$agent" 2>/dev/null || true; fi
  # What still runs is taken away by the runtime that runs it.
  if [ -S "$work/c.sock" ]; then
    for task in $(ctr tasks ls -q 2>/dev/null || true); do ctr tasks kill -s KILL "$task" 2>/dev/null || true; done
    for task in $(ctr tasks ls -q 2>/dev/null || true); do ctr tasks rm -f "$task" >/dev/null 2>&1 || true; done
  fi
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  for shim in $(shims); do kill -KILL "$shim" 2>/dev/null || true; done
  while read -r mounted; do umount -l "$mounted" || true; done < <(awk -v d="$work" '$2 ~ "^" d { print $2 }' /proc/mounts | sort -r)
  ip link delete "$bridge" 2>/dev/null || true
  find /sys/fs/cgroup -depth -type d -path "*$cgroup*" -exec rmdir {} + 2>/dev/null || true
  rm -rf "$work"
  exit "$result"
}

# The shims of this containerd alone.
shims() { pgrep -f -- "-address $work/c.sock" || true; }
ctr() { command ctr --address "$work/c.sock" --namespace k8s.io "$@"; }

image() { # image NAME COMMAND…   of the directory of that name
  local name=$1
  shift
  tar -C "$work/$name" --sort=name --numeric-owner --owner=0 --group=0 -cf "$work/$name.tar" .
  umoci init --layout "$work/layout-$name"
  umoci new --image "$work/layout-$name:1"
  umoci raw add-layer --image "$work/layout-$name:1" "$work/$name.tar"
  umoci config --image "$work/layout-$name:1" --config.env PATH=/bin --config.cmd "$1"
  skopeo copy -q --dest-tls-verify=false "oci:$work/layout-$name:1" "docker://$registry/bench/$name:1"
}

make_images() { # one with a shell, and the one of sandboxes
  mkdir -p "$work"/tiny/{bin,dev,proc,sys,tmp,out} "$work/pause"
  cp "$(command -v busybox)" "$work/tiny/bin/busybox"
  for applet in sh sleep cat true; do ln -s busybox "$work/tiny/bin/$applet"; done
  echo 'int pause(void); int main(void) { for (;;) pause(); }' >"$work/pause.c"
  gcc -Os -static -s -o "$work/pause/pause" "$work/pause.c"
  image tiny /bin/sh
  image pause /pause
}

start_containerd() { # sets `containerd` to its pid
  mkdir -p "$work/cni" "$work/certs.d/$registry"
  echo "server = \"http://$registry\"" >"$work/certs.d/$registry/hosts.toml"
  cat >"$work/cni/10-bench.conflist" <<JSON
{"cniVersion":"0.4.0","name":"imagelet-bench","plugins":[
 {"type":"bridge","bridge":"$bridge","isGateway":true,"ipMasq":false,
  "ipam":{"type":"host-local","ranges":[[{"subnet":"10.88.77.0/24"}]],"dataDir":"$work/ipam"}}]}
JSON
  cat >"$work/containerd.toml" <<TOML
version = 2
root = "$disk/containerd"
state = "$work/state"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.opt"]
[grpc]
  address = "$work/c.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$registry/bench/pause:1"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$work/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "/usr/sbin/runc"
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "$work/certs.d"
TOML
  containerd -c "$work/containerd.toml" >"$work/containerd.log" 2>&1 </dev/null &
  containerd=$!
  pids+=("$containerd")
  line_of "$work/containerd.log" 'Start streaming server' "$containerd" >/dev/null
}

ticks() { # ticks PID…   CPU seconds, those of children that have ended apart
  local sum=0 pid fields
  for pid in "$@"; do
    fields=$(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null) || continue
    sum=$((sum + $(awk '{ print $12 + $13 }' <<<"$fields")))
  done
  awk -v t="$sum" -v hz="$(getconf CLK_TCK)" 'BEGIN { printf "%.2f", t / hz }'
}
machine() { awk -v hz="$(getconf CLK_TCK)" '/^cpu / { printf "%.2f", ($2 + $3 + $4 + $7 + $8) / hz }' /proc/stat; }
memory() { # memory FIELD PID…   sum in MB
  local field=$1
  shift
  for pid in "$@"; do cat "/proc/$pid/smaps_rollup" 2>/dev/null || true; done | awk -v f="$field:" '$1 == f { s += $2 } END { printf "%.1f", s / 1024 }'
}
difference() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.4f", b - a }'; }
median() { sort -n "$1" | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
