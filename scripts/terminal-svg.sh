#!/usr/bin/env bash
# Records docs/terminal.svg: runs real commands of the built imagelet on a terminal of 162 columns, against registries on loopback. First the same
# image is pulled into containerd's store by containerd and by imagelet; then come the commands that explain and that read files.
#
# terminal-svg.sh [PROGRAM] [FILE]: the program is target/release/imagelet if none is named, the file docs/terminal.svg. Needs root, python3 and
# scripts/prerequisites.sh; the image app of bench-images.sh is pulled from a disk with a journal. Leaves nothing running.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/bench-lib.sh
. scripts/bench-node-lib.sh

program=$(realpath "${1:-target/release/imagelet}")
file=$(realpath "${2:-docs/terminal.svg}")
[ -x "$program" ] || { echo "terminal-svg: $program is missing: cargo build --release -p imagelet" >&2; exit 1; }
command -v python3 >/dev/null || { echo "terminal-svg: python3 is missing: apt-get install python3" >&2; exit 1; }
scripts/bench-images.sh app
need_node terminal-svg


demo=$work
. scripts/demo-lib.sh   # its `image` takes the place of the benchmarks'
begin_layout
tools_layer
settings_layer
image sh:1 '{"Cmd":["/bin/sh"]}' tools
image web:1 '{"Env":["PATH=/bin"],"Cmd":["/bin/sh"],"WorkingDir":"/"}' tools settings
end_layout
port=5555
while listens "$port"; do port=$((port + 1)); done
"$program" registry --layout "$layout" --listen "127.0.0.1:$port" </dev/null >"$work/small.log" 2>&1 &
pids+=($!)
line_of "$work/small.log" '127.0.0.1' $! >/dev/null

start_registry
skopeo copy -q --dest-tls-verify=false "oci:$PWD/target/bench-corpus/oci:app" "docker://$registry/app:1"
export CONTAINERD_DISABLE_PIGZ=1 CONTAINERD_DISABLE_IGZIP=1 # containerd unpacks by itself, whatever else is installed
start_containerd

mkdir -p "$work"/certs.d/{hub,registry}.example "$work/bin" "$work/here"
echo "server = \"http://127.0.0.1:$port\"" >"$work/certs.d/hub.example/hosts.toml"
echo "[host.\"http://$registry\"]" >"$work/certs.d/registry.example/hosts.toml"
cat >"$work/config.yaml" <<YAML
apiVersion: imagelet.dev/v1alpha1
kind: ImageletConfiguration
root: $disk/root
registryConfigPaths: [$work/certs.d]
runtimeLayers: erofs
YAML
cat >"$work/here/pod.yaml" <<'YAML'
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  initContainers: [{name: init, image: "hub.example/sh:1"}]
  containers: [{name: app, image: "hub.example/web:1"}]
YAML
ln -s "$program" "$work/bin/imagelet"

picture=$PWD/scripts/terminal-svg.py
cd "$work/here"
env -i HOME="$work" PATH="$work/bin:/usr/bin:/bin" LANG=C.UTF-8 TERM=xterm-256color IMAGELET_CONFIG="$work/config.yaml" CONTAINERD="unix://$work/c.sock" \
  python3 "$picture" "$file" \
  'imagelet -i $CONTAINERD --pull-engine runtime pull registry.example/app:1     # containerd itself: 192 MB in 7 layers' \
  'imagelet -i $CONTAINERD rmi -q registry.example/app:1' \
  'imagelet -i $CONTAINERD pull registry.example/app:1     # imagelet, into the store of the same containerd' \
  'imagelet ensure -f pod.yaml     # the images of a pod' \
  'imagelet explain -f pod.yaml     # what a kubelet would do now, and why' \
  'imagelet gc explain hub.example/web:1     # would it be removed, and when' \
  'imagelet cat hub.example/web:1 /etc/debian_version     # no mount, no root'
