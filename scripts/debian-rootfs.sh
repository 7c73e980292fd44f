#!/usr/bin/env bash
# Makes the tar of a small Debian root file system, once, and prints where it lies. The tests use it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cache=$PWD/target/test-cache
tar=$cache/debian-rootfs.tar
mkdir -p "$cache"
exec 9>"$cache/debian-rootfs.lock"
flock 9

if [ ! -s "$tar" ]; then
  command -v mmdebstrap >/dev/null || { echo "mmdebstrap is not installed: run scripts/prerequisites.sh" >&2; exit 1; }
  [ "$(id -u)" -eq 0 ] || { echo "making a Debian root file system needs root" >&2; exit 77; }
  # iputils-ping brings a file capability, the others what images usually carry.
  SOURCE_DATE_EPOCH=1700000000 mmdebstrap --quiet --variant=minbase \
    --include=ca-certificates,curl,python3,perl,tzdata,iputils-ping \
    --customize-hook='rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' \
    bookworm "$tar.part.tar" </dev/null >&2
  mv "$tar.part.tar" "$tar"
fi
echo "$tar"
