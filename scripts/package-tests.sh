#!/usr/bin/env bash
# Tests what scripts/package.sh makes, on clean Debian nodes that systemd-nspawn boots: package-tests.sh [PROGRAM] (target/debug/imagelet).
# On the first one the package is installed, upgraded, removed and purged, the tasks of docs/tasks are typed word by word with the units as they
# are, and the image runs as the pod of packaging/kustomize. Then it and a second one are a Kubernetes cluster, in which docs/tasks/fleet.md is typed.
# The nodes have no network but their own; registries there serve this machine's busybox.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[ "$(id -u)" -eq 0 ] || { echo "package-tests: needs root: it boots a container" >&2; exit 77; }
program=$(realpath "${1:-target/debug/imagelet}")
work=$PWD/target/package-tests
group=imagelet-package-$$
hierarchies=(/sys/fs/cgroup)
[ -e /sys/fs/cgroup/cgroup.controllers ] || mapfile -t hierarchies < <(findmnt -rn -t cgroup,cgroup2 -o TARGET)
demo=$work/making
layout=$work/layout
nodes=("$work/node-1" "$work/node-2")
nspawn=()
leader=() # the first process of each node; with it everything in there ends
finish() {
  local result=$? process node
  for process in "${leader[@]}"; do kill -KILL "$process" 2>/dev/null || true; done
  for process in "${nspawn[@]}"; do kill "$process" 2>/dev/null || true; wait "$process" 2>/dev/null || true; done
  for hierarchy in "${hierarchies[@]}"; do find "$hierarchy/$group"-* -depth -type d -exec rmdir {} \; 2>/dev/null || true; done
  for node in "${nodes[@]}"; do unmount "$node"; done
  [ "$result" -ne 0 ] || rm -rf --one-file-system "${nodes[@]}" "${nodes[@]/%/.img}" "$demo" "$layout"
  exit "$result"
}
unmount() { if mountpoint -q "$1"; then umount -R "$1" || umount -R -l "$1"; fi; }
trap finish EXIT
trap 'exit 130' INT TERM

say() { printf '\n# %s\n' "$*"; }
inside() { # inside NUMBER COMMAND…
  local process=${leader[$1 - 1]}
  shift
  nsenter -t "$process" -m -u -i -n -p -r -w -- env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/srv/test TERM=dumb LC_ALL=C.UTF-8 "$@"
}

say "packages of $program"
for node in "${nodes[@]}"; do unmount "$node"; done
rm -rf --one-file-system "$work"
mkdir -p "$work" "${nodes[@]}" "$demo"
# The registry of the cluster has a certificate of this authority, which its nodes and pods trust in addition to this machine's.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=registry.example -addext subjectAltName=DNS:registry.example \
  -addext basicConstraints=critical,CA:FALSE \
  -keyout "$work/registry.key" -out "$work/registry.crt" 2>/dev/null
cat /etc/ssl/certs/ca-certificates.crt "$work/registry.crt" >"$work/authorities.crt"
SSL_CERT_FILE=$work/authorities.crt scripts/package.sh --fast --output "$work/out" "$program"
deb=$(echo "$work"/out/imagelet_*.deb)

say "clean Debian nodes, and images for them"
. scripts/layout-lib.sh
mkdir -p "$demo"/tools/{bin,tmp,etc}
cp "$(command -v busybox)" "$demo/tools/bin/busybox"
for applet in sh sleep mkdir echo httpd wget cat; do ln -s busybox "$demo/tools/bin/$applet"; done
begin_layout
layer tools
image library/busybox:1.36 '{"Env":["PATH=/bin"],"Cmd":["/bin/sh"]}' tools
image pause:3.6 '{"Entrypoint":["/bin/sleep","2147483647"]}' tools
image pause:3.10 '{"Entrypoint":["/bin/sleep","2147483647"]}' tools
for name in web:1 web:2 proxy:1; do # images of a user of the cluster
  mkdir -p "$demo/${name/:/}/srv"
  echo "$name" >"$demo/${name/:/}/srv/content"
  layer "${name/:/}"
  image "$name" '{"Env":["PATH=/bin"],"Cmd":["/bin/sh"]}' tools "${name/:/}"
done
end_layout
plane=$(scripts/control-plane.sh)
tree=$(scripts/debian-node.sh)
make_node() { # make_node DIRECTORY DISK   on a disk of its own: how full this machine's is has no say
  local node=$1 host
  truncate -s "$2" "$node.img"
  mkfs.ext4 -q -m 0 "$node.img"
  mount -o loop "$node.img" "$node"
  tar -C "$node" -xf "$tree"
  mkdir -p "$node/srv/test/cluster"
  cp -r "$layout" "$node/srv/layout"
  cp "$program" "$node/srv/registry" # serves the layout as a registry; a program apart from the one that is installed
  for host in docker.io registry.k8s.io; do
    mkdir -p "$node/etc/containerd/certs.d/$host"
    echo '[host."http://127.0.0.1:5000"]' >"$node/etc/containerd/certs.d/$host/hosts.toml"
  done
  # As in containers that may not lower it.
  sed -i 's/^  \[plugins."io.containerd.grpc.v1.cri"\]$/&\n    restrict_oom_score_adj = true/' "$node/etc/containerd/config.toml"
  printf '%s\n' '[plugins."io.containerd.grpc.v1.cri".registry]' 'config_path = "/etc/containerd/certs.d"' >>"$node/etc/containerd/config.toml"
  cat >"$node/etc/systemd/system/registry.service" <<'UNIT'
[Service]
ExecStart=/srv/registry registry --layout /srv/layout --listen 127.0.0.1:5000
[Install]
WantedBy=multi-user.target
UNIT
  mkdir -p "$node/etc/systemd/system/multi-user.target.wants"
  ln -s ../registry.service "$node/etc/systemd/system/multi-user.target.wants/registry.service"
  echo '192.0.2.1 registry.example' >>"$node/etc/hosts"
  cp "$work/authorities.crt" "$node/etc/ssl/certs/ca-certificates.crt"
  cp "$work"/registry.{crt,key} "$node/srv/test/cluster/"
  cp "$deb" scripts/package-tests/*.sh "$node/srv/test/"
}
make_node "${nodes[0]}" 8G
make_node "${nodes[1]}" 3G
node=${nodes[0]}
# Debian has no kubelet: this stands for one where a page restarts it.
printf '[Service]\nExecStart=/bin/sleep infinity\n' >"$node/etc/systemd/system/kubelet.service"
mkdir -p "$node/var/lib/kubelet"
echo 'kind: KubeletConfiguration' >"$node/var/lib/kubelet/config.yaml"
# An older package, for the upgrade: the same with another number.
dpkg-deb -R "$deb" "$work/older"
sed -i 's/^Version: .*/Version: 0.0.1-1/' "$work/older/DEBIAN/control"
dpkg-deb -Zgzip -z1 -b "$work/older" "$node/srv/test/older.deb" >/dev/null
rm -rf "$work/older"
cp "$work/out/imagelet-image.tar" "$node/srv/test/"
cp -r docs/tasks "$node/srv/test/tasks"
"$plane/kubectl" kustomize packaging/kustomize >"$node/srv/test/daemonset.yaml"
mkdir "$node/srv/control-plane"
for name in kube-apiserver kube-controller-manager kube-scheduler etcd kubectl; do
  found=$plane/$name
  [ -x "$found" ] || found=/usr/bin/$name
  cp "$found" "$node/srv/control-plane/$name"
done
ln -s /srv/control-plane/kubectl "$node/usr/bin/kubectl"
cp "$(command -v docker-registry)" "$node/srv/docker-registry"

say "booting them"
boot() { # boot NUMBER   in cgroups of its own, so that those of its pods lie below and end with it
  local hierarchy unified=0 own=$group-$1
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then unified=1; fi
  for hierarchy in "${hierarchies[@]}"; do
    mkdir -p "$hierarchy/$own"
    if [ -e "$hierarchy/cpuset.cpus" ]; then
      cat "$hierarchy/cpuset.cpus" >"$hierarchy/$own/cpuset.cpus"
      cat "$hierarchy/cpuset.mems" >"$hierarchy/$own/cpuset.mems"
    fi
    echo "$BASHPID" >"$hierarchy/$own/cgroup.procs"
  done
  SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=$unified SYSTEMD_NSPAWN_API_VFS_WRITABLE=1 exec systemd-nspawn -q --register=no --keep-unit -D "${nodes[$1 - 1]}" \
    --hostname="node-$1" --private-network --capability=all --system-call-filter=@keyring --boot
}
start() { # start NUMBER   returns when the node has started its services
  local number=$1 index=$(($1 - 1)) running=$work/running-$1
  boot "$number" </dev/null >"$work/boot-$number.log" 2>&1 &
  nspawn[index]=$!
  for _ in $(seq 300); do
    leader[index]=$(pgrep -P "${nspawn[index]}" -x systemd || true)
    if [ -n "${leader[index]}" ] && inside "$number" systemctl is-system-running --wait >"$running" 2>/dev/null; then break; fi
    kill -0 "${nspawn[index]}" 2>/dev/null || { tail -20 "$work/boot-$number.log" >&2; exit 1; }
    sleep 0.1
  done
  # systemd-nspawn shows the older hierarchies read-only.
  inside "$number" bash -c 'for hierarchy in /sys/fs/cgroup/*/; do mount -o remount,rw,bind "$hierarchy" 2>/dev/null || true; done'
  grep -qx running "$running" || { cat "$work/boot-$number.log" >&2; inside "$number" systemctl --failed --no-pager >&2; exit 1; }
}
run_part() { # run_part NUMBER PART [ARGUMENT]
  say "$2 on node $1"
  inside "$1" bash "/srv/test/$2.sh" "${@:3}" && return
  echo "package-tests: $2 failed; the logs of the nodes and of their containers are in $work/journal-*.txt" >&2
  for number in "${!leader[@]}"; do
    inside $((number + 1)) bash -c 'journalctl --no-pager -b; tail -n 30 /var/log/pods/*/*/*.log' >"$work/journal-$((number + 1)).txt" || true
  done
  exit 1
}
start 1
parts=(${PARTS:-life tasks pod})
for part in "${parts[@]}"; do run_part 1 "$part"; done

start 2
for number in 1 2; do inside "$number" dpkg -i "/srv/test/$(basename "$deb")" >/dev/null; done
# One wire between the two.
ip link add "im$$a" type veth peer name "im$$b"
ip link set "im$$a" netns "${leader[0]}" name cluster0
ip link set "im$$b" netns "${leader[1]}" name cluster0
run_part 1 cluster 1
cp -r "${nodes[0]}/srv/test/cluster/." "${nodes[1]}/srv/test/cluster/"
run_part 2 cluster 2
run_part 1 fleet
printf '\npackage-tests: everything passed\n'
