#!/usr/bin/env bash
# Makes the tar of a clean Debian node with systemd, containerd and a network for pods, once, and prints where it lies. scripts/package-tests.sh boots it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cache=$PWD/target/test-cache
tar=$cache/debian-node.tar
mkdir -p "$cache"
exec 9>"$cache/debian-node.lock"
flock 9

if [ ! -s "$tar" ]; then
  command -v mmdebstrap >/dev/null || { echo "mmdebstrap is not installed: run scripts/prerequisites.sh" >&2; exit 1; }
  [ "$(id -u)" -eq 0 ] || { echo "making a Debian root file system needs root" >&2; exit 77; }
  # Nothing of the network is there when it runs: what the pages install is in the tree already. The lists stay, so that apt knows it.
  SOURCE_DATE_EPOCH=1700000000 mmdebstrap --quiet --variant=minbase \
    --include=systemd,systemd-sysv,dbus,ca-certificates,containerd,runc,containernetworking-plugins,iptables,iproute2,procps,openssl,dnsmasq-base \
    --customize-hook='rm -rf "$1"/var/cache/apt/archives "$1"/etc/machine-id; : >"$1"/etc/machine-id' \
    bookworm "$tar.part.tar" </dev/null >&2
  mv "$tar.part.tar" "$tar"
fi
echo "$tar"
