#!/usr/bin/env bash
# Writes images as an OCI layout. Sourced, not run, with a directory for small files in $demo; after `begin_layout` the images lie in $layout.
# The demos make theirs with it, and scripts/package.sh that of imagelet. The same content has the same digests every time.
set -euo pipefail

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
  gzip -n "-${gzip_level:-9}" "$demo/$1.tar"
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
