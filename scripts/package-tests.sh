#!/usr/bin/env bash
# Tests what scripts/package.sh makes, on a clean Debian node that systemd-nspawn boots: package-tests.sh [PROGRAM] (target/debug/imagelet).
# The package is installed, upgraded, removed and purged; the tasks of docs/tasks are typed word by word, with the units as they are;
# the image runs as the pod of packaging/kustomize. The node has no network but its own loopback: its registry serves this machine's busybox.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[ "$(id -u)" -eq 0 ] || { echo "package-tests: needs root: it boots a container" >&2; exit 77; }
program=$(realpath "${1:-target/debug/imagelet}")
work=$PWD/target/package-tests
node=$work/node
disk=$work/disk.img
group=imagelet-package-$$
hierarchies=(/sys/fs/cgroup)
[ -e /sys/fs/cgroup/cgroup.controllers ] || mapfile -t hierarchies < <(findmnt -rn -t cgroup,cgroup2 -o TARGET)
demo=$work/making
layout=$work/layout
nspawn=
leader=
finish() {
  local result=$?
  # The first process of the node; with it everything in there ends.
  if [ -n "$leader" ]; then kill -KILL "$leader" 2>/dev/null || true; fi
  if [ -n "$nspawn" ]; then kill "$nspawn" 2>/dev/null || true; wait "$nspawn" 2>/dev/null || true; fi
  for hierarchy in "${hierarchies[@]}"; do find "$hierarchy/$group" -depth -type d -exec rmdir {} \; 2>/dev/null || true; done
  if mountpoint -q "$node"; then umount -R "$node" || umount -R -l "$node"; fi
  [ "$result" -ne 0 ] || rm -rf --one-file-system "$node" "$disk" "$demo" "$layout"
  exit "$result"
}
trap finish EXIT
trap 'exit 130' INT TERM

say() { printf '\n# %s\n' "$*"; }
inside() { nsenter -t "$leader" -m -u -i -n -p -r -w -- env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/srv/test TERM=dumb LC_ALL=C.UTF-8 "$@"; }

say "packages of $program"
if mountpoint -q "$node"; then umount -R -l "$node"; fi
rm -rf --one-file-system "$work"
mkdir -p "$work" "$node" "$demo"
scripts/package.sh --fast --output "$work/out" "$program"
deb=$(echo "$work"/out/imagelet_*.deb)

say "a clean Debian node, and images for it"
# On a disk of its own: how full this machine's is has no say.
truncate -s 8G "$disk"
mkfs.ext4 -q -m 0 "$disk"
mount -o loop "$disk" "$node"
tar -C "$node" -xf "$(scripts/debian-node.sh)"
. scripts/layout-lib.sh
mkdir -p "$demo"/tools/{bin,tmp,etc}
cp "$(command -v busybox)" "$demo/tools/bin/busybox"
for applet in sh sleep mkdir echo httpd wget cat; do ln -s busybox "$demo/tools/bin/$applet"; done
begin_layout
layer tools
image library/busybox:1.36 '{"Env":["PATH=/bin"],"Cmd":["/bin/sh"]}' tools
image pause:3.6 '{"Entrypoint":["/bin/sleep","2147483647"]}' tools
image pause:3.10 '{"Entrypoint":["/bin/sleep","2147483647"]}' tools
end_layout
mkdir "$node/srv/test"
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
# Debian has no kubelet: this stands for one where a page restarts it.
printf '[Service]\nExecStart=/bin/sleep infinity\n' >"$node/etc/systemd/system/kubelet.service"
mkdir -p "$node/etc/systemd/system/multi-user.target.wants" "$node/var/lib/kubelet"
ln -s ../registry.service "$node/etc/systemd/system/multi-user.target.wants/registry.service"
echo 'kind: KubeletConfiguration' >"$node/var/lib/kubelet/config.yaml"
# An older package, for the upgrade: the same with another number.
dpkg-deb -R "$deb" "$work/older"
sed -i 's/^Version: .*/Version: 0.0.1-1/' "$work/older/DEBIAN/control"
dpkg-deb -Zgzip -z1 -b "$work/older" "$node/srv/test/older.deb" >/dev/null
rm -rf "$work/older"
cp "$deb" scripts/package-tests/*.sh "$node/srv/test/"
cp "$work/out/imagelet-image.tar" "$node/srv/test/"
cp -r docs/tasks "$node/srv/test/tasks"
"$(scripts/control-plane.sh)/kubectl" kustomize packaging/kustomize >"$node/srv/test/daemonset.yaml"

say "booting it"
boot() { # in cgroups of its own, so that those of its pods lie below and end with it
  local hierarchy unified=0
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then unified=1; fi
  for hierarchy in "${hierarchies[@]}"; do
    mkdir -p "$hierarchy/$group"
    if [ -e "$hierarchy/cpuset.cpus" ]; then
      cat "$hierarchy/cpuset.cpus" >"$hierarchy/$group/cpuset.cpus"
      cat "$hierarchy/cpuset.mems" >"$hierarchy/$group/cpuset.mems"
    fi
    echo "$BASHPID" >"$hierarchy/$group/cgroup.procs"
  done
  SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=$unified SYSTEMD_NSPAWN_API_VFS_WRITABLE=1 exec systemd-nspawn -q --register=no --keep-unit -D "$node" \
    --private-network --capability=all --system-call-filter=@keyring --boot
}
boot </dev/null >"$work/boot.log" 2>&1 &
nspawn=$!
for _ in $(seq 300); do
  leader=$(pgrep -P "$nspawn" -x systemd || true)
  if [ -n "$leader" ] && inside systemctl is-system-running --wait >"$work/running" 2>/dev/null; then break; fi
  kill -0 "$nspawn" 2>/dev/null || { tail -20 "$work/boot.log" >&2; exit 1; }
  sleep 0.1
done
# systemd-nspawn shows the older hierarchies read-only.
inside bash -c 'for hierarchy in /sys/fs/cgroup/*/; do mount -o remount,rw,bind "$hierarchy" 2>/dev/null || true; done'
grep -qx running "$work/running" || { cat "$work/boot.log" >&2; inside systemctl --failed --no-pager >&2; exit 1; }

for part in life tasks pod; do
  say "$part"
  inside bash "/srv/test/$part.sh" || { echo "package-tests: $part failed; the node's log is in $work/journal.txt" >&2; inside journalctl --no-pager -b >"$work/journal.txt"; exit 1; }
done
printf '\npackage-tests: everything passed\n'
