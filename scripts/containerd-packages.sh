#!/usr/bin/env bash
# Fetches containerd of other Debian suites: containerd-packages.sh [SUITE…]   (trixie sid)
# Installs nothing. Each package is unpacked into target/containerd/SUITE, whose name is printed on a line of its own: that is what
# CONTAINERD=DIR of the tests and `--containerd DIR` of bench-pull take. Where containerd has the erofs snapshotter, erofs-utils of the
# suite are next to it with the libraries that they need: containerd calls mkfs.erofs, and the one of Debian 12 is too old for it.
# What is there already is kept; `rm -r target/containerd` fetches it again. A suite that no mirror has is said, and passed over.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/apt-lib.sh

place=$PWD/target/containerd
mkdir -p "$place"
exec 9>"$place/lock"
flock 9
work=$(mktemp -d "$place/.fetching.XXXXXX")
trap 'rm -rf "$work"' EXIT

fetch() { # fetch SUITE   into $work/SUITE/package
  local suite=$1 home=$work/$1
  apt_of "$suite" "$home"
  export APT_CONFIG=$home/apt.conf
  (cd "$home" && apt-get update -qq && apt-get download -qq containerd) >"$home/said" 2>&1 </dev/null || return 1
  dpkg -x "$home"/containerd_*.deb "$home/package"
  if "$home/package/usr/bin/containerd" config default >"$home/defaults" 2>/dev/null && grep -q 'snapshotter.v1.erofs' "$home/defaults"; then
    erofs_utils "$home" >>"$home/said" 2>&1 || echo "containerd-packages: $suite: no erofs-utils: $(tail -1 "$home/said")" >&2
  fi
  # Without the configuration of the package: nothing here reads it.
  rm -rf "$home/package/etc" "$home/package/usr/share"
  unset APT_CONFIG
}

erofs_utils() { # erofs_utils HOME   with the C library of the suite, started by the loader of that library
  local home=$1 tools=$1/tools file
  apt-get install -qq -y --download-only --no-install-recommends erofs-utils </dev/null || return 1
  for file in "$home"/var/cache/apt/archives/*.deb; do dpkg -x "$file" "$tools"; done
  mkdir -p "$home/package/usr/lib/erofs-utils"
  find "$tools" -name '*.so*' \( -type f -o -type l \) -exec cp -L -t "$home/package/usr/lib/erofs-utils" {} + 2>/dev/null || true
  for file in mkfs.erofs fsck.erofs dump.erofs; do
    cp "$(find "$tools" -path "*bin/$file" | head -1)" "$home/package/usr/lib/erofs-utils/$file" || return 1
    cat >"$home/package/usr/bin/$file" <<'SH'
#!/bin/sh
lib=$(dirname "$(readlink -f "$0")")/../lib/erofs-utils
exec "$lib"/ld-linux*.so.* --library-path "$lib" "$lib/${0##*/}" "$@"
SH
    chmod +x "$home/package/usr/bin/$file"
  done
  "$home/package/usr/bin/mkfs.erofs" --version
}

suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(trixie sid)
for suite in "${suites[@]}"; do
  if [ ! -x "$place/$suite/usr/bin/containerd" ]; then
    if ! fetch "$suite" || ! "$work/$suite/package/usr/bin/containerd" --version >"$work/$suite/said" 2>&1; then
      echo "containerd-packages: $suite is passed over: its containerd cannot be had or does not run here: $(tail -1 "$work/$suite/said")" >&2
      continue
    fi
    rm -rf "${place:?}/$suite"
    mv "$work/$suite/package" "$place/$suite"
  fi
  echo "$place/$suite"
done
