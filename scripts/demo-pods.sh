#!/usr/bin/env bash
# From nothing to a pod that runs and serves, on Debian's containerd and without Kubernetes; and to nothing again when its file
# goes. Needs root. A containerd, networks, ports and directories of this machine are not touched: everything runs in namespaces
# of its own (network, mounts, processes), which end with the demo, however it ends.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

demo=$PWD/target/demo-pods
cgroup=/imagelet-demo-pods   # where the pods' processes are
manifests_dir=$demo/pods     # the directory that imagelet keeps running
inside=                      # process id of the part in namespaces

. scripts/demo-lib.sh
config=$demo/config.yaml
imagelet() { show ./target/debug/imagelet --config "$config" "$@"; }

sweep() { # what is left of this run or an earlier one; nothing is mounted any more, as the mounts were in a namespace
  local hierarchy below
  for hierarchy in /sys/fs/cgroup /sys/fs/cgroup/*/; do
    below=${hierarchy%/}$cgroup
    if [ -d "$below" ]; then
      for _ in $(seq 100); do
        find "$below" -depth -type d -exec rmdir {} + 2>/dev/null || true
        if [ ! -d "$below" ]; then break; fi
        sleep 0.05
      done
    fi
  done
}
finish() {
  local result=$?
  trap - EXIT
  if [ -n "$inside" ]; then
    kill -KILL "$inside" 2>/dev/null || true # and the kernel ends everything in its namespaces
    wait "$inside" 2>/dev/null || true
  fi
  sweep
  [ "$result" -eq 0 ] || printf '\ndemo: failed with exit code %d\n' "$result" >&2
  exit "$result"
}

until_so() { # until_so WHAT COMMAND…   asks again until it is so, for a minute
  local what=$1 tries=600
  shift
  until "$@" >/dev/null 2>&1; do
    tries=$((tries - 1))
    if [ "$tries" -eq 0 ]; then
      echo "demo: it never comes to this: $what" >&2
      for log in containerd imagelet registry; do echo "-- $log:" >&2; tail -n 20 "$demo/$log.log" >&2 || true; done
      exit 1
    fi
    sleep 0.1
  done
}

outside() {
  trap finish EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  [ "$(id -u)" -eq 0 ] || { echo "demo: pods need root: run it as root or with sudo" >&2; exit 77; }

  say "1. what the demo needs"
  scripts/prerequisites.sh --pods
  need_cargo

  say "2. build imagelet"
  show cargo build -q --locked -p imagelet
  sweep
  rm -rf --one-file-system "$demo"
  mkdir -p "$demo" "$manifests_dir"

  say "3. make two small real images from this machine's own files, as an OCI layout"
  begin_layout
  tools_layer
  image demo/shell:1.0 '{"Env":["PATH=/bin"],"Cmd":["/bin/sh"]}' tools
  image demo/pause:1.0 '{"Entrypoint":["/bin/sleep","2147483647"]}' tools
  end_layout

  unshare --net --mount --pid --fork --kill-child --mount-proc -- "$0" --inside </dev/null &
  inside=$!
  wait "$inside"
  inside=
  say "done: nothing is left running; logs and configuration lie in target/demo-pods"
}

write_configuration() {
  mkdir -p "$demo"/{certs/127.0.0.1:5555,cni,log,root}
  echo 'server = "http://127.0.0.1:5555"' >"$demo/certs/127.0.0.1:5555/hosts.toml"
  cat >"$demo/cni/10-demo.conflist" <<JSON
{"cniVersion":"0.4.0","name":"demo","plugins":[
 {"type":"bridge","bridge":"demo0","isGateway":true,"hairpinMode":true,
  "ipam":{"type":"host-local","ranges":[[{"subnet":"10.88.0.0/16"}]],"routes":[{"dst":"0.0.0.0/0"}],"dataDir":"$demo/addresses"}},
 {"type":"portmap","capabilities":{"portMappings":true}}]}
JSON
  cat >"$demo/containerd.toml" <<TOML
version = 2
root = "$demo/containerd/root"
state = "$demo/containerd/state"
[grpc]
  address = "/run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "127.0.0.1:5555/demo/pause:1.0"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$demo/cni"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "$demo/certs"
TOML
  cat >"$config" <<YAML
apiVersion: imagelet.dev/v1alpha1
kind: ImageletConfiguration
root: $demo/root
containerRuntimeEndpoint: unix:///run/containerd.sock
imageServiceEndpoint: unix:///run/containerd.sock
podLogsDir: $demo/log/pods
podCgroup: $cgroup
nodeName: demo
YAML
}

within() { # all of this is gone when it returns
  mount -t tmpfs tmpfs /run # sockets and locks of the runtime
  mkdir -p /var/lib/cni
  mount -t tmpfs tmpfs /var/lib/cni
  ip link set lo up
  write_configuration

  say "4. serve the images as a registry, and start Debian's containerd with a network for pods: both see nothing of this machine's"
  ./target/debug/imagelet registry --layout "$layout" --listen 127.0.0.1:5555 </dev/null >"$demo/registry.log" 2>&1 &
  until_so "the registry listens" listens 5555
  containerd --version
  containerd --config "$demo/containerd.toml" </dev/null >"$demo/containerd.log" 2>&1 &
  until_so "containerd answers" ctr --address /run/containerd.sock plugins list
  until_so "containerd speaks CRI" grep -q "Start streaming server" "$demo/containerd.log"

  say "5. keep running what is in a directory, which is empty"
  printf '$ ./target/debug/imagelet --config target/demo-pods/config.yaml run --manifests target/demo-pods/pods &\n'
  ./target/debug/imagelet --config "$config" run --manifests "$manifests_dir" </dev/null >"$demo/imagelet.log" 2>&1 &
  local agent=$!
  until_so "imagelet answers" ./target/debug/imagelet --config "$config" pods

  say "6. a file comes, and its pod runs"
  show cp examples/web.yaml "$manifests_dir/web.yaml"
  until_so "the pod is ready" is_ready
  imagelet pods -o wide

  say "7. it serves: at its own address, and at a port of the node"
  local address
  address=$(pod_ip)
  show busybox wget -q -O - "http://$address/"
  show busybox wget -q -O - "http://127.0.0.1:8080/"

  say "8. what is known of it"
  imagelet describe web
  imagelet logs web
  imagelet exec web -- ls -l /www

  say "9. imagelet is killed and starts again: the pod goes on"
  printf '$ kill -9 %d\n' "$agent"
  kill -9 "$agent"
  wait "$agent" 2>/dev/null || true
  show busybox wget -q -O - "http://127.0.0.1:8080/"
  ./target/debug/imagelet --config "$config" run --manifests "$manifests_dir" </dev/null >>"$demo/imagelet.log" 2>&1 &
  agent=$!
  until_so "the pod is known again" is_ready
  imagelet pods

  say "10. the file goes, and so does everything of the pod"
  show rm "$manifests_dir/web.yaml"
  until_so "the pod is gone" is_gone
  imagelet pods
  show ctr --address /run/containerd.sock --namespace k8s.io containers list
  if busybox wget -q -O - "http://127.0.0.1:8080/" >/dev/null 2>&1; then
    echo "demo: the port of the node still answers" >&2
    exit 1
  fi
  kill "$agent"
  wait "$agent" || true
}
pods_json() { ./target/debug/imagelet --config "$config" pods -o json; }
is_ready() { pods_json | tr -d ' \n' | grep -q '"type":"Ready","status":"True"'; }
pod_ip() { pods_json | sed -n 's/.*"podIP": *"\([0-9.]*\)".*/\1/p' | head -n 1; }
is_gone() {
  [ -z "$(ctr --address /run/containerd.sock --namespace k8s.io containers list --quiet)" ] && [ -z "$(ls "$demo/log/pods")" ]
}

case "${1:-}" in
  "") outside ;;
  --inside) within ;;
  *) echo "usage: demo-pods.sh" >&2; exit 2 ;;
esac
