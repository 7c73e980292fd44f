#!/usr/bin/env bash
# Makes what is given out: package.sh [--fast] [--output DIR] [PROGRAM]. Without PROGRAM, the static release program is built, which takes 20 minutes.
#   imagelet                   the program without its debug information, which is in imagelet.debug
#   imagelet_VERSION_ARCH.deb  the Debian package
#   imagelet-image.tar         the OCI image localhost/imagelet:VERSION, an OCI layout as an archive
#   imagelet.cdx.json          the bill of materials, CycloneDX
#   SHA256SUMS
# The same program gives the same files. Works in target/packages; the files come to DIR (target/packages by default). Docs: docs/packages.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Bytes that a release program may have at most, stripped (docs/decisions/0103-small-except-decoders.md).
largest=$((40 * 1000 * 1000))

output=$PWD/target/packages program= fast=() # --fast compresses less, for tests
while [ $# -gt 0 ]; do
  case $1 in
    --output) output=$(realpath -m "$2"); shift 2 ;;
    --fast) fast=(--fast); gzip_level=1; shift ;;
    -*) sed -n '2,8s/^# //p' "$0" >&2; exit 2 ;;
    *) program=$1; shift ;;
  esac
done
scripts/tools.sh cargo-deb cargo-cyclonedx
export PATH="$PWD/target/tools/bin:$PATH"
# Times in the packages are those of the commit.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.lock)}
export SOURCE_DATE_EPOCH
work=$PWD/target/packages
demo=$work/making
layout=$work/layout
mkdir -p "$work" "$output"
exec 9>"$work/lock"
flock 9
rm -rf "$demo" "$layout" "$work/share" "$work/program"
mkdir -p "$demo" "$work/share" "$work/program"
. scripts/layout-lib.sh
. scripts/release-lib.sh

released=
if [ -z "$program" ]; then
  released=yes
  echo "package: building the static release program"
  # Paths of this machine do not come into the program: it is the same wherever it is built.
  RUSTFLAGS="--remap-path-prefix=$PWD=/imagelet --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo" CARGO_TARGET_DIR=$work/target \
    cargo rustc -q --locked --release -p imagelet --bin imagelet --config 'profile.release.strip="none"' -- "${release_flags[@]}"
  program=$work/target/release/imagelet
fi

# The program, and apart from it what back traces and debuggers need.
objcopy --only-keep-debug --compress-debug-sections=zlib "$program" "$work/program/imagelet.debug"
cp "$program" "$work/program/imagelet"
(cd "$work/program" && strip imagelet && objcopy --add-gnu-debuglink=imagelet.debug imagelet && chmod 755 imagelet && chmod 644 imagelet.debug)
if readelf -SW "$work/program/imagelet" | grep -q '[.]debug_info'; then echo "package: the program has debug information" >&2; exit 1; fi
size=$(stat -c %s "$work/program/imagelet")
echo "package: the program has $((size / 1000)) kB"
if [ -n "$released" ]; then
  [ "$size" -le "$largest" ] || { echo "package: it must not have more than $((largest / 1000)) kB" >&2; exit 1; }
  if readelf -l "$work/program/imagelet" | grep -q 'INTERP'; then echo "package: the program is not static" >&2; exit 1; fi
fi
version=$("$work/program/imagelet" version -o json | sed -n 's/.*"version": *"\([^"]*\)".*/\1/p' | head -1)

packaging/share.sh "$work/program/imagelet" "$work/share"
cp CHANGELOG.md "$work/share/changelog"
cargo deb -q -p imagelet --no-build --no-strip "${fast[@]}" --output "$output/" 9>&-

# The bill of materials. The tool writes one next to every Cargo.toml of the workspace.
cargo cyclonedx -qq --manifest-path crates/imagelet/Cargo.toml --format json --spec-version 1.5 --no-build-deps --override-filename imagelet-sbom 9>&-
mv crates/imagelet/imagelet-sbom.json "$output/imagelet.cdx.json"
rm -f crates/*/imagelet-sbom.json xtask/imagelet-sbom.json bench/imagelet-sbom.json

# The image: the program, the libraries that it needs if it is not static, and the authorities of this machine or of $SSL_CERT_FILE.
root=$demo/rootfs
mkdir -p "$root"/{usr/bin,etc/ssl/certs,run,var/lib,var/tmp,tmp}
chmod 1777 "$root/tmp" "$root/var/tmp"
cp "$work/program/imagelet" "$root/usr/bin/imagelet"
cp -L "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" "$root/etc/ssl/certs/ca-certificates.crt"
if libraries=$(ldd "$work/program/imagelet" 2>/dev/null); then
  for library in $(grep -o '/[^ ]*' <<<"$libraries"); do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
  done
fi
begin_layout
layer rootfs
image "localhost/imagelet:$version" '{"Entrypoint":["/usr/bin/imagelet"],"Env":["PATH=/usr/bin"],"WorkingDir":"/","Labels":{"org.opencontainers.image.title":"imagelet","org.opencontainers.image.licenses":"Apache-2.0","org.opencontainers.image.version":"'"$version"'"}}' rootfs
end_layout
tar -C "$layout" --sort=name --format=posix --pax-option=delete=atime,delete=ctime --numeric-owner --owner=0 --group=0 \
  --mtime="@$SOURCE_DATE_EPOCH" -cf "$output/imagelet-image.tar" .

[ "$output" = "$work/program" ] || cp "$work/program/imagelet" "$work/program/imagelet.debug" "$output/"
rm -rf "$demo" "$layout"
(cd "$output" && sha256sum imagelet imagelet.debug imagelet_*.deb imagelet-image.tar imagelet.cdx.json >SHA256SUMS && cat SHA256SUMS)
