#!/usr/bin/env bash
# Times a pod from the manifest's file to the container's first command while its image is absent, with `imagelet run` on containerd: pulled by
# containerd itself, by imagelet as directories, and as EROFS files, in turn.
# usage: bench-absent.sh [ROUNDS [IMAGE]]   (3 rounds of the image app by default; scripts/bench-images.sh makes it).
# BENCH_IMAGELET=FILE for a program that is there already.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/bench-lib.sh
. scripts/bench-node-lib.sh

rounds=${1:-3}
name=${2:-app}
scripts/prerequisites.sh
scripts/bench-images.sh "$name"
build_imagelet bench-absent
need_node bench-absent
mkdir -p "$disk/out"

start_registry
echo "bench-absent: making the images"
make_images
skopeo copy -q --dest-tls-verify=false "oci:$PWD/target/bench-corpus/oci:$name" "docker://$registry/bench/$name:1"
# containerd must not unpack with other programs that happen to be installed.
export CONTAINERD_DISABLE_PIGZ=1 CONTAINERD_DISABLE_IGZIP=1
start_containerd

asked() { "$imagelet" --root "$root" --config "$work/config.yaml" "$@"; }

start_agent() { # start_agent ENGINE LAYERS   sets `agent` and `root`
  root=$disk/imagelet-$1-$2
  manifests=$disk/manifests-$1-$2
  mkdir -p "$manifests" "$disk/logs"
  cat >"$work/config.yaml" <<YAML
apiVersion: imagelet.dev/v1alpha1
kind: ImageletConfiguration
containerRuntimeEndpoint: unix://$work/c.sock
staticPodPath: $manifests
podLogsDir: $disk/logs
podCgroup: $cgroup
nodeName: bench
pullEngine: $1
runtimeLayers: $2
YAML
  "$imagelet" --root "$root" --config "$work/config.yaml" run >"$work/imagelet.log" 2>&1 </dev/null &
  agent=$!
  until asked metrics >/dev/null 2>&1; do
    kill -0 "$agent" 2>/dev/null || { cat "$work/imagelet.log" >&2; exit 1; }
    sleep 0.05
  done
}

pod() { # pod FILE   starts a pod and appends its time to the file
  local begun deadline=$((SECONDS + 180))
  cat >"$disk/pod.yaml" <<YAML
apiVersion: v1
kind: Pod
metadata: {name: absent}
spec:
  terminationGracePeriodSeconds: 1
  hostNetwork: true
  containers:
  - name: main
    image: $registry/bench/$name:1
    command: [/bin/sh, -c, "trap 'exit 0' TERM; : >/out/runs; while :; do sleep 1000000 & wait; done"]
    volumeMounts: [{name: out, mountPath: /out}]
  volumes:
  - name: out
    hostPath: {path: $disk/out}
YAML
  sync
  begun=$(date +%s.%N)
  mv "$disk/pod.yaml" "$manifests/"
  until [ -e "$disk/out/runs" ]; do
    [ "$SECONDS" -lt "$deadline" ] || { tail -n 30 "$work/imagelet.log" >&2; echo "bench-absent: the pod does not run" >&2; exit 1; }
    sleep 0.01
  done
  difference "$begun" "$(stat -c %.9Y "$disk/out/runs")" >>"$1"
  echo >>"$1"
  rm "$manifests/pod.yaml"
  until [ -z "$(ctr containers ls -q)" ]; do sleep 0.1; done
  rm "$disk/out/runs"
  asked rmi -i "unix://$work/c.sock" "$registry/bench/$name:1" >/dev/null
}

engines=('runtime dir' 'embedded dir' 'embedded erofs')
echo "bench-absent: $rounds rounds; load average $(cut -d' ' -f1-3 /proc/loadavg)"
for round in $(seq "$rounds"); do
  for engine in "${engines[@]}"; do
    # shellcheck disable=SC2086 # two words
    start_agent $engine
    pod "$work/${engine// /-}"
    kill "$agent"
    wait "$agent" 2>/dev/null || true
    agent=
  done
  printf '  round %d: containerd %s s; directories %s s; EROFS files %s s\n' "$round" "$(tail -n1 "$work/runtime-dir")" \
    "$(tail -n1 "$work/embedded-dir")" "$(tail -n1 "$work/embedded-erofs")"
done

own=$(median "$work/runtime-dir")
echo
echo "$(nproc) cores, Linux $(uname -r), $(containerd --version | awk '{ print $1, $3 }'); medians of $rounds rounds, load $(cut -d' ' -f1-3 /proc/loadavg)"
echo "from the manifest's file to the container's first command (seconds), image $name absent"
printf '%-24s %10s %10s\n' 'pulled by' median ratio
row() { printf '%-24s %10.3f %10.2f\n' "$1" "$(median "$2")" "$(awk -v a="$own" -v b="$(median "$2")" 'BEGIN { print a / b }')"; }
row containerd "$work/runtime-dir"
row 'imagelet, directories' "$work/embedded-dir"
row 'imagelet, EROFS files' "$work/embedded-erofs"
