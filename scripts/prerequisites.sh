#!/usr/bin/env bash
# Installs the Debian packages that the tests and the demos use: prerequisites.sh [--demo|--pods|--bench]. Does nothing when they are there.
set -euo pipefail

# A C compiler for the two libraries that are C inside (ring, zstd), and what the demo makes its image of.
demo=(gcc libc6-dev busybox-static ca-certificates tar gzip)
# What runs pods, for the demo with pods.
pods=(containerd runc containernetworking-plugins iptables iproute2 mount util-linux)
# Real daemons and tools that the product tests compare with, and what makes images and file systems.
tests=(
  docker-registry apache2-utils openssl curl podman
  python3 python3-grpcio python3-jsonschema binutils dpkg-dev systemd systemd-container chromium
  skopeo umoci mmdebstrap zstd xz-utils attr libcap2-bin e2fsprogs xfsprogs btrfs-progs erofs-utils procps time faketime
)
# What `cargo xtask bench-pull` measures, measures with, and makes its images of. igzip (isal) and libdeflate are for the floor of the machine.
bench=(
  containerd docker-registry podman skopeo umoci mmdebstrap python3 python3-pip busybox-static gcc libc6-dev openssl zstd isal libdeflate-tools
  e2fsprogs mount procps time linux-perf
)

packages=("${demo[@]}")
case "${1:-}" in
  --demo) ;;
  --pods) packages+=("${pods[@]}") ;;
  --bench)
    packages+=("${bench[@]}")
    # Debian's npm and a node of another origin exclude each other: what is there is used.
    command -v npm >/dev/null || packages+=(nodejs npm)
    ;;
  "") packages+=("${pods[@]}" "${tests[@]}") ;;
  *) echo "usage: prerequisites.sh [--demo|--pods|--bench]" >&2; exit 2 ;;
esac

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "prerequisites: all ${#packages[@]} packages are installed"
  exit 0
fi

echo "prerequisites: installing ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "prerequisites: not root and no sudo: please install: ${missing[*]}" >&2; exit 77; }
  as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq </dev/null || echo "prerequisites: apt-get update had problems, trying all the same"
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >/dev/null
echo "prerequisites: installed ${#missing[@]} packages"
