#!/usr/bin/env bash
# What the demos share: how they talk, and how they make images from this machine's own files. Sourced, not run, with the demo's
# directory below target in $demo; after `begin_layout` the images lie as an OCI layout in $layout.
set -euo pipefail

layout=$demo/layout

say() {
  if [ -t 1 ]; then printf '\n\033[1m# %s\033[0m\n' "$*"; else printf '\n# %s\n' "$*"; fi
}
show() { # show COMMAND…   prints it as one would type it, then runs it
  printf '$ %s\n' "$(printf '%s ' "${@/#"$PWD/"/}" | sed 's/ $//')"
  "$@" </dev/null
}
need_cargo() {
  command -v cargo >/dev/null || { echo "demo: cargo is missing: install Rust first (https://rustup.rs)" >&2; exit 1; }
}

begin_layout() {
  mkdir -p "$layout/blobs/sha256"
  manifests=()
}
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
image() { # image NAME CONFIG LAYER…   an image of these layers with this member `config`
  local name=$1 config=$2 diffs=() layers=() one diff packed digest type=application/vnd.oci.image architecture
  shift 2
  architecture=$(uname -m | sed -e s/x86_64/amd64/ -e s/aarch64/arm64/)
  for one in "$@"; do
    diff=${one}_diff packed=${one}_blob
    diffs+=("\"${!diff}\"")
    layers+=("{\"mediaType\":\"$type.layer.v1.tar+gzip\",\"digest\":\"${!packed}\",\"size\":$(size "${!packed}")}")
  done
  cat >"$demo/config" <<JSON
{"created":"2023-11-14T22:13:20Z","architecture":"$architecture","os":"linux","config":$config,
 "rootfs":{"type":"layers","diff_ids":[$(joined "${diffs[@]}")]}}
JSON
  digest=$(blob "$demo/config")
  cat >"$demo/manifest" <<JSON
{"schemaVersion":2,"mediaType":"$type.manifest.v1+json",
 "config":{"mediaType":"$type.config.v1+json","digest":"$digest","size":$(size "$digest")},
 "layers":[$(joined "${layers[@]}")]}
JSON
  digest=$(blob "$demo/manifest")
  manifests+=("{\"mediaType\":\"$type.manifest.v1+json\",\"digest\":\"$digest\",\"size\":$(size "$digest"),
 \"annotations\":{\"org.opencontainers.image.ref.name\":\"$name\"}}")
  echo "image $name in ${layout#"$PWD/"}: manifest $digest"
}
joined() { local IFS=,; echo "$*"; }
end_layout() {
  echo '{"imageLayoutVersion":"1.0.0"}' >"$layout/oci-layout"
  echo "{\"schemaVersion\":2,\"manifests\":[$(joined "${manifests[@]}")]}" >"$layout/index.json"
}

tools_layer() { # busybox with all its applets
  mkdir -p "$demo"/tools/{bin,dev,proc,sys,tmp,root}
  chmod 1777 "$demo/tools/tmp"
  cp "$(command -v busybox)" "$demo/tools/bin/busybox"
  local applet
  for applet in $("$demo/tools/bin/busybox" --list | grep -vx busybox); do ln -s busybox "$demo/tools/bin/$applet"; done
  layer tools
}
settings_layer() { # a few files of this machine, and a user
  mkdir -p "$demo/settings/etc"
  local file
  for file in os-release debian_version services protocols hosts; do
    if [ -r "/etc/$file" ]; then cp -L "/etc/$file" "$demo/settings/etc/$file"; fi
  done
  echo 'root:x:0:0:root:/root:/bin/sh' >"$demo/settings/etc/passwd"
  echo 'root:x:0:' >"$demo/settings/etc/group"
  layer settings
}

listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
