#!/usr/bin/env bash
# Times pods from the manifest's file to the container's first command, on Debian's containerd, and what imagelet costs while 30 pods run.
# usage: bench-pods.sh [ROUNDS [IDLE_SECONDS]]   (5 rounds and 300 seconds by default). BENCH_PODS=N for another number than 30,
# BENCH_IMAGELET=FILE for a program that is there already.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/bench-lib.sh
. scripts/bench-node-lib.sh

rounds=${1:-5}
idle=${2:-300}
many=${BENCH_PODS:-30}
scripts/prerequisites.sh
build_imagelet bench-pods
need_node bench-pods
mkdir -p "$disk"/{out,manifests,logs} "$work/next"

start_registry
echo "bench-pods: making the images"
make_images
start_containerd

cat >"$work/config.yaml" <<YAML
apiVersion: imagelet.dev/v1alpha1
kind: ImageletConfiguration
containerRuntimeEndpoint: unix://$work/c.sock
staticPodPath: $disk/manifests
podLogsDir: $disk/logs
podCgroup: $cgroup
nodeName: bench
YAML
root=$disk/imagelet
"$imagelet" --root "$root" --config "$work/config.yaml" run >"$work/imagelet.log" 2>&1 </dev/null &
agent=$!
asked() { "$imagelet" --root "$root" --config "$work/config.yaml" "$@"; }
until asked metrics >/dev/null 2>&1; do
  kill -0 "$agent" 2>/dev/null || { cat "$work/imagelet.log" >&2; exit 1; }
  sleep 0.05
done

# The time at which it runs is that of its first command: a file on the node.
manifest() { # manifest NAME
  cat <<YAML
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: $registry/bench/tiny:1
    command: [/bin/sh, -c, "trap 'exit 0' TERM; : >/out/$1; while :; do sleep 1000000 & wait; done"]
    volumeMounts: [{name: out, mountPath: /out}]
  volumes:
  - name: out
    hostPath: {path: $disk/out}
YAML
}

calls() { # calls   seconds that the runtime was waited for to make and start what a pod has, so far
  asked metrics | awk '/^kubelet_runtime_operations_duration_seconds_sum\{operation_type="(run_podsandbox|create_container|start_container)"\}/ { s += $2 } END { printf "%.6f", s }'
}
operations() { asked metrics | awk '/^kubelet_runtime_operations_total\{/ { s += $2 } END { print s + 0 }'; }
gone() { # gone   takes all pods away, and waits until nothing of them is left
  rm -f "$disk"/manifests/*
  until [ -z "$(ctr containers ls -q)" ] && [ -z "$(ls -A "$root/pods" 2>/dev/null)" ]; do sleep 0.1; done
  rm -f "$disk"/out/*
}

# start COUNT FILE   starts so many pods at once and appends to FILE.*: the median and the longest time, waits, CPU seconds
start() {
  local count=$1 file=$2 number name deadline before_calls before_agent before_containerd before_machine
  for number in $(seq "$count"); do manifest "p$number" >"$work/next/p$number.yaml"; done
  mkdir -p "$disk/next"
  cp "$work"/next/*.yaml "$disk/next/"
  before_calls=$(calls) before_agent=$(ticks "$agent") before_containerd=$(ticks "$containerd") before_machine=$(machine)
  : >"$file.each"
  for number in $(seq "$count"); do
    # As a file is put in place: it appears whole.
    printf '%s p%s\n' "$(date +%s.%N)" "$number" >>"$file.begin"
    mv "$disk/next/p$number.yaml" "$disk/manifests/"
  done
  deadline=$((SECONDS + 180))
  until [ "$(find "$disk/out" -type f | wc -l)" -eq "$count" ]; do
    [ "$SECONDS" -lt "$deadline" ] || { tail -n 30 "$work/imagelet.log" >&2; echo "bench-pods: not all pods run" >&2; exit 1; }
    sleep 0.02
  done
  while read -r begun name; do
    echo "$(stat -c %.9Y "$disk/out/$name") $begun" | awk '{ printf "%.4f\n", $1 - $2 }' >>"$file.each"
  done <"$file.begin"
  rm -f "$file.begin" "$work"/next/*
  # The answer to the last start is on its way while its command runs already.
  until [ "$(asked metrics | awk '/^kubelet_runtime_operations_total\{operation_type="start_container"\}/ { n = $2 } END { print n + 0 }')" -ge "$((started + count))" ]; do sleep 0.02; done
  started=$((started + count))
  median "$file.each" >>"$file.median"
  sort -n "$file.each" | tail -n 1 >>"$file.longest"
  difference "$before_calls" "$(calls)" | awk -v n="$count" '{ printf "%.4f\n", $1 / n }' >>"$file.calls"
  difference "$before_agent" "$(ticks "$agent")" >>"$file.agent"; echo >>"$file.agent"
  difference "$before_containerd" "$(ticks "$containerd")" >>"$file.containerd"; echo >>"$file.containerd"
  difference "$before_machine" "$(machine)" >>"$file.machine"; echo >>"$file.machine"
}
started=0

echo "bench-pods: a first pod, which brings the image"
start 1 "$work/warm"
gone

echo "bench-pods: $rounds rounds; load average $(cut -d' ' -f1-3 /proc/loadavg)"
for round in $(seq "$rounds"); do
  start 1 "$work/one"
  gone
  start "$many" "$work/many"
  [ "$round" -eq "$rounds" ] || gone
  printf '  round %d: 1 pod %s s; %d pods median %s s, last %s s\n' "$round" "$(tail -n1 "$work/one.median")" "$many" \
    "$(tail -n1 "$work/many.median")" "$(tail -n1 "$work/many.longest")"
done

row() { # row LABEL FILE
  local whole waited
  whole=$(median "$2.median") waited=$(median "$2.calls")
  printf '%-10s %10.3f %10.3f %14.3f %14.3f %10.2f %12.2f %10.2f\n' "$1" "$whole" "$(median "$2.longest")" "$waited" \
    "$(difference "$waited" "$whole")" "$(median "$2.agent")" "$(median "$2.containerd")" "$(median "$2.machine")"
}
echo
echo "$(nproc) cores, Linux $(uname -r), $(containerd --version | awk '{ print $1, $3 }'), $(runc --version | head -n 1); medians of $rounds rounds, load $(cut -d' ' -f1-3 /proc/loadavg)"
echo "from the manifest's file to the container's first command (seconds), image present; CPU seconds of the whole round"
printf '%-10s %10s %10s %14s %14s %10s %12s %10s\n' pods median last 'in the calls' 'besides' imagelet containerd machine
row 1 "$work/one"
row "$many" "$work/many"

[ "$idle" -gt 0 ] || exit 0
echo
echo "bench-pods: $many pods run idle for $idle s"
sleep 10
mapfile -t shim_pids < <(shims)
before=("$(ticks "$agent")" "$(ticks "$containerd")" "$(ticks "${shim_pids[@]}")")
before_operations=$(operations)
sleep "$idle"
after=("$(ticks "$agent")" "$(ticks "$containerd")" "$(ticks "${shim_pids[@]}")")
idle_row() { # idle_row LABEL INDEX PID…
  local label=$1 index=$2
  shift 2
  printf '%-22s %10.2f %10.2f %10s %10s\n' "$label" "$(difference "${before[$index]}" "${after[$index]}")" \
    "$(echo "${before[$index]} ${after[$index]} $idle" | awk '{ print ($2 - $1) / $3 * 100 }')" "$(memory Rss "$@")" "$(memory Pss "$@")"
}
printf '%-22s %10s %10s %10s %10s\n' '' 'CPU (s)' 'CPU (%)' 'RSS (MB)' 'PSS (MB)'
idle_row imagelet 0 "$agent"
idle_row containerd 1 "$containerd"
idle_row "${#shim_pids[@]} shims" 2 "${shim_pids[@]}"
echo "imagelet asked the runtime $(($(operations) - before_operations)) times"
