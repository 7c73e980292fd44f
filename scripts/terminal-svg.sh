#!/usr/bin/env bash
# Records docs/terminal.svg: runs real commands of the built imagelet on a terminal of 152 columns, against a registry on loopback.
#
# terminal-svg.sh [PROGRAM] [FILE]: the program is target/debug/imagelet if none is named, the file docs/terminal.svg. The image is made of this
# machine's own files, as in demo.sh; hosts.toml leads hub.example to the registry. Needs python3. Leaves nothing running.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

program=$(realpath "${1:-target/debug/imagelet}")
file=$(realpath "${2:-docs/terminal.svg}")
[ -x "$program" ] || { echo "terminal-svg: $program is missing: cargo build -p imagelet" >&2; exit 1; }
command -v python3 >/dev/null || { echo "terminal-svg: python3 is missing: apt-get install python3" >&2; exit 1; }

demo=$(mktemp -d /tmp/imagelet.XXXX)   # deleted at the end
server=               # process id of the registry
. scripts/demo-lib.sh
finish() {
  local result=$?
  if [ -n "$server" ]; then
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  chmod -R u+rwX "$demo"
  rm -rf "$demo"
  exit "$result"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

begin_layout
tools_layer
settings_layer
image sh:1 '{"Cmd":["/bin/sh"]}' tools
image web:1 '{"Env":["PATH=/bin"],"Cmd":["/bin/sh"],"WorkingDir":"/"}' tools settings
end_layout

port=5555
while listens "$port"; do port=$((port + 1)); done
"$program" registry --layout "$layout" --listen "127.0.0.1:$port" </dev/null >"$demo/registry.log" 2>&1 &
server=$!
until listens "$port"; do
  kill -0 "$server" 2>/dev/null || { cat "$demo/registry.log" >&2; server=; exit 1; }
  sleep 0.05
done

mkdir -p "$demo/certs.d/hub.example" "$demo/bin" "$demo/here"
echo "server = \"http://127.0.0.1:$port\"" >"$demo/certs.d/hub.example/hosts.toml"
cat >"$demo/config.yaml" <<YAML
apiVersion: imagelet.dev/v1alpha1
kind: ImageletConfiguration
root: $demo/root
registryConfigPaths: [$demo/certs.d]
YAML
cat >"$demo/here/pod.yaml" <<'YAML'
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  initContainers: [{name: init, image: "hub.example/sh:1"}]
  containers: [{name: app, image: "hub.example/web:1"}]
YAML
ln -s "$program" "$demo/bin/imagelet"

cd "$demo/here"
env -i HOME="$demo" PATH="$demo/bin:/usr/bin:/bin" LANG=C.UTF-8 TERM=xterm-256color IMAGELET_CONFIG="$demo/config.yaml" \
  python3 "$OLDPWD/scripts/terminal-svg.py" "$file" \
  'cat pod.yaml' \
  'imagelet ensure -f pod.yaml' \
  'imagelet explain -f pod.yaml     # what a kubelet would do now, and why' \
  'imagelet gc explain hub.example/web:1     # would it be removed, and when' \
  'imagelet cat hub.example/web:1 /etc/debian_version     # no mount, no root'
