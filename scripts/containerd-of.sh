#!/usr/bin/env bash
# Runs the scene in which containerd's applier is given layers without those below (crates/imagelet/tests/product/layers.rs) with the
# containerd of another Debian suite: containerd-of.sh [SUITE]   (sid). Installs nothing: the package is unpacked into a directory that
# goes again, and mounted over the installed programs for the test alone. Needs root; says so and ends well when no mirror answers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
suite=${1:-sid}
[ "$(id -u)" -eq 0 ] || { echo "containerd-of: needs root" >&2; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/apt/{etc/apt/{sources.list.d,preferences.d,apt.conf.d},var/lib/apt/lists/partial,var/lib/dpkg,var/cache/apt/archives/partial}
: >"$work/apt/var/lib/dpkg/status"
cat >"$work/apt/etc/apt/sources.list.d/debian.sources" <<SOURCES
Types: deb
URIs: ${DEBIAN_MIRROR:-http://deb.debian.org/debian}
Suites: $suite
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
SOURCES
# Of its own in everything. A mirror may stand still: how old its lists are says nothing here, and their signatures are looked at.
cat >"$work/apt.conf" <<CONF
Dir "$work/apt/";
Dir::State::status "$work/apt/var/lib/dpkg/status";
Acquire::Check-Valid-Until "false";
Acquire::Languages "none";
APT::Sandbox::User "root";
CONF
export APT_CONFIG=$work/apt.conf
if ! apt-get update -qq >"$work/said" 2>&1 || ! (cd "$work" && apt-get download -qq containerd >>"$work/said" 2>&1); then
  echo "containerd-of: skipped: containerd of $suite cannot be had here: $(tail -1 "$work/said")"
  exit 0
fi
unset APT_CONFIG
dpkg-deb -x "$work"/containerd_*.deb "$work/package"
"$work/package/usr/bin/containerd" --version

cargo test -q --locked -p imagelet --test product --no-run
export work
# shellcheck disable=SC2016
unshare --mount --propagation private bash -ec '
  for program in containerd ctr containerd-shim-runc-v2; do
    mount --bind "$work/package/usr/bin/$program" "/usr/bin/$program"
  done
  cargo test -q --locked -p imagelet --test product layers::containerds'
