#!/usr/bin/env bash
# Builds the images that `cargo xtask bench-pull` pulls, as one OCI layout: bench-images.sh [NAME…]   (all of them by default)
# Nothing comes from a registry of images: the content is Debian packages, wheels of PyPI and trees of npm, by fixed versions. What is there
# already is kept (target/bench-corpus). NAME: pause tiny base app ml manylayers; base and app get a second tag with zstd layers, NAME-zstd.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

corpus=$PWD/target/bench-corpus
oci=$corpus/oci
tars=$corpus/layers
export SOURCE_DATE_EPOCH=1700000000
mkdir -p "$tars" "$corpus/downloads"
exec 9>"$corpus/lock"
flock 9
scratch=$(mktemp -d "$corpus/scratch.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM
[ -e "$oci/index.json" ] || umoci init --layout "$oci"

say() { echo "bench-images: $*" >&2; }
has() { # has TAG   whether the layout has it
  grep -q "\"org.opencontainers.image.ref.name\":\"$1\"" <(tr -d ' \n' <"$oci/index.json")
}
pack() { # pack NAME DIR   a layer of the directory's content, the same every time; under its name only when it is whole
  tar -C "$2" --sort=name --format=posix --pax-option=delete=atime,delete=ctime --mtime="@$SOURCE_DATE_EPOCH" \
    --numeric-owner --owner=0 --group=0 -cf "$tars/.$1" .
  mv "$tars/.$1" "$tars/$1.tar"
}
image() { # image NAME COMMAND LAYER…   the tag appears when everything is in place
  local name=$1 command=$2 layer
  shift 2
  umoci rm --image "$oci:making" 2>/dev/null || true
  umoci new --image "$oci:making"
  for layer in "$@"; do umoci raw add-layer --image "$oci:making" "$tars/$layer.tar"; done
  umoci config --image "$oci:making" --config.cmd "$command" --config.env PATH=/usr/sbin:/usr/bin:/sbin:/bin --architecture amd64 --os linux
  umoci tag --image "$oci:making" "$name"
  umoci rm --image "$oci:making"
}
wheels() { # wheels DIR NAME==VERSION…   these wheels and none that they depend on, as one tree of packages
  local dir=$1 wheel
  shift
  mkdir -p "$dir"
  for wheel in "$@"; do
    python3 -m pip download -q --no-deps --only-binary=:all: --python-version 311 --platform manylinux_2_28_x86_64 \
      --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 -d "$corpus/downloads/${wheel%%=*}" "$wheel"
    python3 -m zipfile -e "$corpus/downloads/${wheel%%=*}"/*.whl "$dir"
  done
}
packages() { # packages DIR NAME@VERSION…   a tree of npm
  local dir=$1
  shift
  mkdir -p "$dir"
  npm install --silent --ignore-scripts --no-audit --no-fund --no-package-lock --legacy-peer-deps --prefix "$dir" "$@" >/dev/null
}
layer() { # layer NAME FUNCTION   makes a layer once; the function fills the directory in $1
  [ ! -s "$tars/$1.tar" ] || return 0
  local root=$scratch/$1
  mkdir -p "$root"
  "$2" "$root"
  pack "$1" "$root"
  rm -rf "$root"
}

fill_pause() {
  printf '%s\n' '#include <signal.h>' '#include <unistd.h>' 'static void end(int s) { (void)s; _exit(0); }' \
    'int main(void) { signal(SIGTERM, end); signal(SIGINT, end); for (;;) pause(); }' >"$scratch/pause.c"
  gcc -Os -static -s -o "$1/pause" "$scratch/pause.c"
}
fill_tiny() {
  local applet
  mkdir -p "$1"/{bin,etc,tmp,proc,sys,dev,root}
  cp "$(command -v busybox)" "$1/bin/busybox"
  for applet in $(busybox --list | grep -vx busybox); do ln -sf busybox "$1/bin/$applet"; done
  echo 'root:x:0:0:root:/:/bin/sh' >"$1/etc/passwd"
  echo 'root:x:0:' >"$1/etc/group"
}
fill_python() { wheels "$1/usr/lib/python3/dist-packages" botocore==1.44.5 django==5.2.19 sqlalchemy==2.1.9 babel==2.18.0; }
fill_science() { wheels "$1/usr/lib/python3/dist-packages" sympy==1.14.0 plotly==7.1.0 pandas==3.1.1 numpy==2.4.6; }
fill_server() { packages "$1/srv/app" webpack@5 typescript@5 eslint@9 jest@30 rxjs@7 date-fns@4 lodash@4 @babel/preset-env@7; }
fill_pages() { packages "$1/srv/ui" @mui/icons-material@5 react@18 react-dom@18; }
fill_sources() { # small files, a whiteout of a file and an opaque directory
  local i
  mkdir -p "$1/srv/app/src" "$1/usr/share/doc" "$1/srv/app/node_modules/lodash"
  for i in $(seq 200); do echo "module.exports=$i" >"$1/srv/app/src/m$i.js"; done
  : >"$1/usr/share/doc/.wh.perl"
  : >"$1/srv/app/node_modules/lodash/.wh..wh..opq"
  echo '{}' >"$1/srv/app/node_modules/lodash/package.json"
}
fill_settings() {
  mkdir -p "$1/etc/app" "$1/srv"
  echo port=8080 >"$1/etc/app/app.conf"
  ln -sf app/src/m1.js "$1/srv/start.js"
}
fill_tensors() { wheels "$1/opt/py" tensorflow-cpu==2.20.0; }
fill_trees() { wheels "$1/opt/py" xgboost==3.2.0; }
fill_arrows() { wheels "$1/opt/py" pyarrow==26.0.1 scipy==1.17.1 scikit-learn==1.9.1; }
fill_weights() { # 256 MiB that nothing compresses
  mkdir -p "$1/models"
  openssl enc -aes-128-ctr -K 00112233445566778899aabbccddeeff -iv 00000000000000000000000000000000 -nosalt -in <(head -c 268435456 /dev/zero) -out "$1/models/weights.bin"
}

layer_base() {
  [ ! -s "$tars/base.tar" ] || return 0
  [ "$(id -u)" -eq 0 ] || { say "making a Debian root file system needs root" >&2; exit 77; }
  mmdebstrap --quiet --variant=minbase --include=ca-certificates,curl,python3,perl,tzdata \
    --customize-hook='rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    bookworm "$tars/.base.tar" </dev/null >&2
  mv "$tars/.base.tar" "$tars/base.tar"
}
make_pause() { layer pause fill_pause; image pause /pause pause; }
make_tiny() { layer tiny fill_tiny; image tiny /bin/sh tiny; }
make_base() { layer_base; image base /bin/bash base; }
make_app() {
  layer_base
  layer app-python fill_python
  layer app-science fill_science
  layer app-server fill_server
  layer app-pages fill_pages
  layer app-sources fill_sources
  layer app-settings fill_settings
  image app /srv/start.js base app-python app-science app-server app-pages app-sources app-settings
}
make_ml() {
  layer ml-tensors fill_tensors
  layer ml-trees fill_trees
  layer ml-arrows fill_arrows
  layer ml-weights fill_weights
  image ml /bin/true ml-tensors ml-trees ml-arrows ml-weights
}
make_manylayers() {
  local i j root layers=(tiny)
  layer tiny fill_tiny
  for i in $(seq 59); do
    root=$scratch/many
    rm -rf "$root"
    mkdir -p "$root/data/$i" "$root/shared"
    for j in $(seq 20); do head -c $((i * j * 37)) "$(command -v busybox)" >"$root/data/$i/f$j"; done
    echo "$i" >"$root/shared/last"
    [ "$i" -lt 2 ] || : >"$root/data/.wh.$((i - 1))"
    pack "many-$i" "$root"
    layers+=("many-$i")
  done
  image manylayers /bin/sh "${layers[@]}"
}
with_zstd() { # with_zstd NAME   the same image with its layers compressed by zstd, tag NAME-zstd: umoci and skopeo of Debian 12 write gzip only
  python3 - "$oci" "$1" <<'PY'
import gzip, hashlib, json, os, subprocess, sys

layout, name = sys.argv[1:]
REF = "org.opencontainers.image.ref.name"

def path(digest):
    return os.path.join(layout, "blobs", *digest.split(":"))

def put(data):
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    with open(path(digest), "wb") as blob:
        blob.write(data)
    return {"digest": digest, "size": len(data)}

with open(os.path.join(layout, "index.json")) as file:
    index = json.load(file)
source = next(m for m in index["manifests"] if m["annotations"][REF] == name)
with open(path(source["digest"])) as file:
    manifest = json.load(file)
for layer in manifest["layers"]:
    plain = gzip.open(path(layer["digest"])).read()
    packed = subprocess.run(["zstd", "-q", "-3", "-T2", "-c"], input=plain, stdout=subprocess.PIPE, check=True).stdout
    layer.update(put(packed), mediaType="application/vnd.oci.image.layer.v1.tar+zstd")
index["manifests"].append(dict(source, **put(json.dumps(manifest).encode()), annotations={REF: name + "-zstd"}))
new = os.path.join(layout, "index.json.new")
with open(new, "w") as file:
    json.dump(index, file, separators=(",", ":"))
os.rename(new, os.path.join(layout, "index.json"))
PY
}

wanted=("$@")
[ ${#wanted[@]} -gt 0 ] || wanted=(pause tiny base app ml manylayers)
for name in "${wanted[@]}"; do
  case $name in
    pause | tiny | base | app | ml | manylayers) ;;
    *) echo "bench-images: no image is called $name; there are pause tiny base app ml manylayers" >&2; exit 2 ;;
  esac
  if ! has "$name"; then
    say "making $name"
    "make_$name"
  fi
  case $name in
    base | app) if ! has "$name-zstd"; then say "making $name-zstd"; with_zstd "$name"; fi ;;
  esac
done
say "the images are in target/bench-corpus/oci"
