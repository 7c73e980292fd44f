#!/usr/bin/env bash
# From nothing to a pod's image on this machine: builds imagelet, makes an image, serves it, and ensures it. Leaves nothing running.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

demo=$PWD/target/demo
root=$demo/root       # where imagelet keeps its images here; a real node uses /var/lib/imagelet
mountpoint=$demo/mnt
server=               # process id of the registry

. scripts/demo-lib.sh
imagelet() { show ./target/debug/imagelet --root "$root" "$@"; }

sweep() { # what an earlier run may have left
  if mountpoint -q "$mountpoint" 2>/dev/null; then umount "$mountpoint"; fi
  if [ -e "$demo" ]; then
    chmod -R u+rwX "$demo" 2>/dev/null || true
    rm -rf "$demo"
  fi
}
finish() {
  local result=$?
  if mountpoint -q "$mountpoint" 2>/dev/null; then umount "$mountpoint" || true; fi
  if [ -n "$server" ]; then
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  [ "$result" -eq 0 ] || printf '\ndemo: failed with exit code %d\n' "$result" >&2
  exit "$result"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say "1. what the demo needs"
scripts/prerequisites.sh --demo
need_cargo

say "2. build imagelet"
show cargo build -q --locked -p imagelet
sweep
mkdir -p "$mountpoint"

say "3. make a small real image from this machine's own files, as an OCI layout"
begin_layout
tools_layer
settings_layer
image demo/shell:1.0 '{"Env":["PATH=/bin"],"Cmd":["/bin/sh"],"WorkingDir":"/"}' tools settings
end_layout

say "4. serve the layout as a registry, read-only"
port=5555
while listens "$port"; do
  echo "port $port is taken, trying the next"
  port=$((port + 1))
done
printf '$ ./target/debug/imagelet registry --layout target/demo/layout --listen 127.0.0.1:%d &\n' "$port"
./target/debug/imagelet registry --layout "$layout" --listen "127.0.0.1:$port" </dev/null >"$demo/registry.log" 2>&1 &
server=$!
until listens "$port"; do
  kill -0 "$server" 2>/dev/null || { cat "$demo/registry.log" >&2; echo "demo: the registry did not start" >&2; server=; exit 1; }
  sleep 0.05
done

say "5. ensure the images of a pod: they come from the registry, verified and unpacked, into imagelet's own store"
pod=examples/pod.yaml
if [ "$port" -ne 5555 ]; then
  pod=target/demo/pod.yaml
  sed "s/127\.0\.0\.1:5555/127.0.0.1:$port/" examples/pod.yaml >"$pod"
fi
imagelet ensure -f "$pod"
imagelet images

say "6. once more: everything is there, nothing is done"
imagelet ensure -f "$pod"

say "7. the image's file system"
image=127.0.0.1:$port/demo/shell:1.0
if [ "$(id -u)" -eq 0 ]; then
  imagelet mount "$image" "$mountpoint"
  show ls "$mountpoint"
  show chroot "$mountpoint" /bin/head -n 2 /etc/os-release
  imagelet unmount "$mountpoint"
else
  echo "(mounting needs root: run the demo as root to see this step)"
fi

say "8. what it costs on disk"
imagelet df

say "done: nothing is left running; what was made lies in target/demo"
