#!/usr/bin/env bash
# What a node costs a cluster, and the cluster a node: 30 idle pods of a Deployment on a node of scripts/control-plane.sh's API server.
# Requests by verb and resource, bytes, CPU and memory of the node's program, and the time from a pod's creation to Running.
# usage: bench-cluster.sh [IDLE_SECONDS [STARTS]]   (300 seconds and 20 pods by default). BENCH_PODS=N for another number than 30,
# BENCH_IMAGELET=FILE for a program that is there already, BENCH_KUBELET=FILE for a kubelet (1.29 or later) as the node instead.
# KUBEBUILDER_ASSETS=DIR is another control plane. Everything runs in a network of its own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/bench-lib.sh
. scripts/bench-node-lib.sh
if [ "${1:-}" != --inside ]; then
  [ "$(id -u)" -eq 0 ] || { echo "bench-cluster: needs root: it makes a network, mounts a disk and runs pods" >&2; exit 77; }
  # What may be fetched is fetched before: the network leads nowhere.
  command -v python3 >/dev/null || scripts/prerequisites.sh --bench
  scripts/prerequisites.sh
  scripts/control-plane.sh >/dev/null
  if [ -z "${BENCH_KUBELET:-}" ]; then build_imagelet bench-cluster; fi
  exec unshare --net "scripts/${0##*/}" --inside "$@"
fi
shift

idle=${1:-300}
starts=${2:-20}
many=${BENCH_PODS:-30}
node=bench
address=192.0.2.7
api=16443
need_node bench-cluster
programs=$(scripts/control-plane.sh)
mkdir -p "$disk"/{etcd,logs} "$work/pki"
ip link set lo up
ip link add node0 type bridge
ip link set node0 up
ip address add "$address/24" dev node0

start_registry
echo "bench-cluster: making the images"
make_images
start_containerd

pki=$work/pki
certificate() { # certificate NAME SUBJECT OPTIONS…
  local name=$1 subject=$2
  shift 2
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "$subject" -keyout "$pki/$name.key" -out "$pki/$name.crt" "$@" 2>/dev/null
}
signed() { certificate "$@" -CA "$pki/ca.crt" -CAkey "$pki/ca.key" -addext basicConstraints=critical,CA:FALSE; }
user() { # user NAME SUBJECT   prints a kubeconfig
  signed "$1" "$2" -addext extendedKeyUsage=clientAuth
  cat >"$pki/$1.kubeconfig" <<YAML
apiVersion: v1
kind: Config
current-context: bench
clusters: [{name: bench, cluster: {server: "https://127.0.0.1:$api", certificate-authority: $pki/ca.crt}}]
users: [{name: bench, user: {client-certificate: $pki/$1.crt, client-key: $pki/$1.key}}]
contexts: [{name: bench, context: {cluster: bench, user: bench}}]
YAML
  echo "$pki/$1.kubeconfig"
}
certificate ca /CN=ca -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign
signed server /CN=kube-apiserver -addext subjectAltName=IP:127.0.0.1,IP:10.0.0.1
openssl genrsa -out "$pki/accounts.key" 2048 2>/dev/null
openssl rsa -in "$pki/accounts.key" -pubout -out "$pki/accounts.pub" 2>/dev/null
KUBECONFIG=$(user admin /O=system:masters/CN=admin)
export KUBECONFIG
kubectl() { "$programs/kubectl" "$@" 2> >(grep -v 'version difference' >&2); }

daemon() { # daemon NAME ARGUMENTS…   of the control plane
  local name=$1
  shift
  "$programs/$name" "$@" >"$work/$name.log" 2>&1 </dev/null &
  pids+=($!)
}
wait_for() { # wait_for WHAT COMMAND…
  local what=$1 deadline=$((SECONDS + 120))
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$deadline" ] || { tail -n 20 "$work"/*.log >&2; echo "bench-cluster: this never comes: $what" >&2; exit 1; }
    sleep 0.2
  done
}
cat >"$work/audit.yaml" <<YAML
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Request, userGroups: ["system:nodes"], verbs: [patch], resources: [{group: "", resources: [pods/status]}]}
- {level: Metadata, userGroups: ["system:nodes"]}
- {level: Metadata, verbs: [create], resources: [{group: "", resources: [pods, pods/binding]}]}
- {level: None}
YAML
echo "bench-cluster: starting the control plane"
daemon etcd "--data-dir=$disk/etcd" --listen-client-urls=http://127.0.0.1:12379 --advertise-client-urls=http://127.0.0.1:12379 \
  --listen-peer-urls=http://127.0.0.1:12380 --unsafe-no-fsync
daemon kube-apiserver --etcd-servers=http://127.0.0.1:12379 --bind-address=127.0.0.1 --secure-port="$api" --advertise-address=127.0.0.1 \
  --endpoint-reconciler-type=none --tls-cert-file="$pki/server.crt" --tls-private-key-file="$pki/server.key" --client-ca-file="$pki/ca.crt" \
  --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$pki/accounts.pub" \
  --service-account-signing-key-file="$pki/accounts.key" --service-cluster-ip-range=10.0.0.0/24 --authorization-mode=Node,RBAC \
  --enable-admission-plugins=NodeRestriction --allow-privileged=true --audit-policy-file="$work/audit.yaml" --audit-log-path="$work/audit.log"
wait_for "the API server" kubectl get --raw /readyz
daemon kube-controller-manager --leader-elect=false --secure-port=0 --kubeconfig="$(user manager /O=system:masters/CN=system:kube-controller-manager)" \
  --root-ca-file="$pki/ca.crt" --service-account-private-key-file="$pki/accounts.key"
daemon kube-scheduler --leader-elect=false --secure-port=0 --kubeconfig="$(user scheduler /CN=system:kube-scheduler)"
wait_for "the account of pods" kubectl get serviceaccount default
user node "/O=system:nodes/CN=system:node:$node" >/dev/null

if [ -n "${BENCH_KUBELET:-}" ]; then
  program=$("$BENCH_KUBELET" --version)
  for hierarchy in $(awk '$3 ~ /^cgroup2?$/ { print $2 }' /proc/mounts); do mkdir -p "$hierarchy$cgroup" 2>/dev/null || true; done
  cat >"$work/config.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://$work/c.sock
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $pki/ca.crt}}
authorization: {mode: Webhook}
clusterDomain: cluster.local
cgroupDriver: cgroupfs
cgroupRoot: $cgroup
failSwapOn: false
failCgroupV1: false
podLogsDir: $disk/logs
# How full the machine's disk is must not matter.
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 0%, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%, imagefs.inodesFree: 0%}
YAML
  "$BENCH_KUBELET" --config "$work/config.yaml" --kubeconfig "$pki/node.kubeconfig" --hostname-override "$node" --node-ip "$address" \
    --root-dir "$disk/kubelet" --cert-dir "$disk/kubelet/pki" >"$work/node.log" 2>&1 </dev/null &
else
  program=$("$imagelet" --version)
  cat >"$work/config.yaml" <<YAML
apiVersion: imagelet.dev/v1alpha1
kind: ImageletConfiguration
root: $disk/imagelet
containerRuntimeEndpoint: unix://$work/c.sock
kubeconfig: $pki/node.kubeconfig
clientCAFile: $pki/ca.crt
registerWithTaints: []
clusterDomain: cluster.local
podLogsDir: $disk/logs
podCgroup: $cgroup
nodeName: $node
nodeIP: [$address]
imageGCHighThresholdPercent: 100
evictionHard: {imagefs.available: 0%, imagefs.inodesFree: 0%, nodefs.available: 0%, nodefs.inodesFree: 0%}
YAML
  "$imagelet" --config "$work/config.yaml" run >"$work/node.log" 2>&1 </dev/null &
fi
agent=$!
wait_for "the node" kubectl get node "$node"
kubectl wait --for=condition=Ready "node/$node" --timeout=120s >/dev/null

cat >"$work/idle.yaml" <<YAML
apiVersion: apps/v1
kind: Deployment
metadata: {name: idle}
spec:
  replicas: $many
  selector: {matchLabels: {app: idle}}
  template:
    metadata: {labels: {app: idle}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: $registry/bench/tiny:1
        command: [/bin/sh, -c, "trap 'exit 0' TERM; while :; do sleep 1000000 & wait; done"]
YAML
echo "bench-cluster: $program, $("$programs/kube-apiserver" --version); load average $(cut -d' ' -f1-3 /proc/loadavg)"
from=$SECONDS
kubectl apply -f "$work/idle.yaml" >/dev/null
kubectl rollout status deployment/idle --timeout=300s >/dev/null || { tail -n 30 "$work/node.log" >&2; exit 1; }
echo "bench-cluster: $many pods are ready after $((SECONDS - from)) s"

for number in $(seq "$starts"); do
  cat >"$work/start.yaml" <<YAML
apiVersion: v1
kind: Pod
metadata: {name: start-$number}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: $registry/bench/tiny:1
    command: [/bin/sh, -c, "trap 'exit 0' TERM; while :; do sleep 1000000 & wait; done"]
YAML
  kubectl create -f "$work/start.yaml" >/dev/null
  kubectl wait --for=jsonpath='{.status.phase}'=Running "pod/start-$number" --timeout=60s >/dev/null
  kubectl delete pod "start-$number" --timeout=60s >/dev/null
done
[ "$starts" -eq 0 ] || scripts/audit-figures.py starts "$work/audit.log" "system:node:$node" start-

[ "$idle" -gt 0 ] || exit 0
sleep 30
echo "bench-cluster: $many pods run idle for $idle s; load average $(cut -d' ' -f1-3 /proc/loadavg)"
bytes() { # bytes   sent to the API server and received from it by the node's program, on the connections that it has now
  ss -tinpH "dport = :$api" | awk -v pid="pid=$agent," '
    /^ESTAB/ { ours = index($0, pid) }
    !/^ESTAB/ && ours { for (i = 1; i <= NF; i++) { split($i, f, ":"); if (f[1] == "bytes_sent") s += f[2]; if (f[1] == "bytes_received") r += f[2] } }
    END { print s + 0, r + 0 }'
}
before=$(ticks "$agent") before_containerd=$(ticks "$containerd") before_bytes=$(bytes) begin=$(date +%s.%N)
sleep "$idle"
after=$(ticks "$agent") after_containerd=$(ticks "$containerd") after_bytes=$(bytes) end=$(date +%s.%N)
echo "$before $after $before_containerd $after_containerd $idle" | awk '{ printf "CPU: %.2f s a minute, containerd %.2f s a minute\n", ($2 - $1) * 60 / $5, ($4 - $3) * 60 / $5 }'
echo "memory: RSS $(memory Rss "$agent") MB, PSS $(memory Pss "$agent") MB, without files $(memory Anonymous "$agent") MB"
echo "$before_bytes $after_bytes $idle" | awk '{ printf "bytes a minute: %.0f sent, %.0f received\n", ($3 - $1) * 60 / $5, ($4 - $2) * 60 / $5 }'
scripts/audit-figures.py requests "$work/audit.log" "system:node:$node" "$begin" "$end"
