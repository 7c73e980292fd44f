#!/usr/bin/env bash
# From nothing to a pod's image on this machine: builds imagelet, makes an image, serves it, and ensures it. Leaves nothing running.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

demo=$PWD/target/demo
root=$demo/root       # where imagelet keeps its images here; a real node uses /var/lib/imagelet
layout=$demo/layout   # an OCI layout: the image as files
mountpoint=$demo/mnt
server=               # process id of the registry

say() {
  if [ -t 1 ]; then printf '\n\033[1m# %s\033[0m\n' "$*"; else printf '\n# %s\n' "$*"; fi
}
show() { # show COMMAND…   prints it as one would type it, then runs it
  printf '$ %s\n' "$(printf '%s ' "${@/#"$PWD/"/}" | sed 's/ $//')"
  "$@" </dev/null
}
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
command -v cargo >/dev/null || { echo "demo: cargo is missing: install Rust first (https://rustup.rs)" >&2; exit 1; }

say "2. build imagelet"
show cargo build -q --locked -p imagelet
sweep
mkdir -p "$layout/blobs/sha256" "$mountpoint"

say "3. make a small real image from this machine's own files, as an OCI layout"
blob() { # blob FILE   moves a file into the layout under its digest, prints the digest
  local hex
  hex=$(sha256sum "$1" | cut -d' ' -f1)
  mv "$1" "$layout/blobs/sha256/$hex"
  printf 'sha256:%s' "$hex"
}
size() { stat -c %s "$layout/blobs/sha256/${1#sha256:}"; }
layer() { # layer NAME   packs $demo/NAME; sets NAME_diff (digest of the tar) and NAME_blob (digest of the gzip)
  tar -C "$demo/$1" --sort=name --format=posix --pax-option=delete=atime,delete=ctime --numeric-owner --owner=0 --group=0 \
    --mtime=@1700000000 -cf "$demo/$1.tar" .
  declare -g "$1_diff=sha256:$(sha256sum "$demo/$1.tar" | cut -d' ' -f1)"
  gzip -n -9 "$demo/$1.tar"
  declare -g "$1_blob=$(blob "$demo/$1.tar.gz")"
  echo "layer $1: $(find "$demo/$1" | wc -l) entries"
}

mkdir -p "$demo"/tools/{bin,dev,proc,sys,tmp,root}
chmod 1777 "$demo/tools/tmp"
cp "$(command -v busybox)" "$demo/tools/bin/busybox"
for applet in $("$demo/tools/bin/busybox" --list | grep -vx busybox); do ln -s busybox "$demo/tools/bin/$applet"; done
layer tools

mkdir -p "$demo/settings/etc"
for file in os-release debian_version services protocols hosts; do
  if [ -r "/etc/$file" ]; then cp -L "/etc/$file" "$demo/settings/etc/$file"; fi
done
echo 'root:x:0:0:root:/root:/bin/sh' >"$demo/settings/etc/passwd"
echo 'root:x:0:' >"$demo/settings/etc/group"
layer settings

architecture=$(uname -m | sed -e s/x86_64/amd64/ -e s/aarch64/arm64/)
cat >"$demo/config" <<JSON
{"created":"2023-11-14T22:13:20Z","architecture":"$architecture","os":"linux",
 "config":{"Env":["PATH=/bin"],"Cmd":["/bin/sh"],"WorkingDir":"/"},
 "rootfs":{"type":"layers","diff_ids":["$tools_diff","$settings_diff"]}}
JSON
config_blob=$(blob "$demo/config")
type=application/vnd.oci.image
cat >"$demo/manifest" <<JSON
{"schemaVersion":2,"mediaType":"$type.manifest.v1+json",
 "config":{"mediaType":"$type.config.v1+json","digest":"$config_blob","size":$(size "$config_blob")},
 "layers":[
  {"mediaType":"$type.layer.v1.tar+gzip","digest":"$tools_blob","size":$(size "$tools_blob")},
  {"mediaType":"$type.layer.v1.tar+gzip","digest":"$settings_blob","size":$(size "$settings_blob")}]}
JSON
manifest_blob=$(blob "$demo/manifest")
echo '{"imageLayoutVersion":"1.0.0"}' >"$layout/oci-layout"
cat >"$layout/index.json" <<JSON
{"schemaVersion":2,"manifests":[{"mediaType":"$type.manifest.v1+json","digest":"$manifest_blob","size":$(size "$manifest_blob"),
 "annotations":{"org.opencontainers.image.ref.name":"demo/shell:1.0"}}]}
JSON
echo "image demo/shell:1.0 in ${layout#"$PWD/"}: manifest $manifest_blob"

say "4. serve the layout as a registry, read-only"
port=5555
while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
  echo "port $port is taken, trying the next"
  port=$((port + 1))
done
printf '$ ./target/debug/imagelet registry --layout target/demo/layout --listen 127.0.0.1:%d &\n' "$port"
./target/debug/imagelet registry --layout "$layout" --listen "127.0.0.1:$port" </dev/null >"$demo/registry.log" 2>&1 &
server=$!
until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
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
