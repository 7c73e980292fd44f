#!/usr/bin/env bash
# Packages of any Debian suite without installing them: apt with lists and a status of its own. Sourced, not run.
set -euo pipefail

apt_of() { # apt_of SUITE HOME   writes HOME/apt.conf, which APT_CONFIG is to name; sources of packages are in its lists, too
  local suite=$1 home=$2
  mkdir -p "$home"/{etc/apt/{sources.list.d,preferences.d,apt.conf.d},var/lib/apt/lists/partial,var/lib/dpkg,var/cache/apt/archives/partial}
  : >"$home/var/lib/dpkg/status"
  cat >"$home/etc/apt/sources.list.d/debian.sources" <<SOURCES
Types: deb deb-src
URIs: ${DEBIAN_MIRROR:-http://deb.debian.org/debian}
Suites: $suite
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
SOURCES
  # A mirror may stand still: how old its lists are says nothing here, and their signatures are checked.
  cat >"$home/apt.conf" <<CONF
Dir "$home/";
Dir::State::status "$home/var/lib/dpkg/status";
Acquire::Check-Valid-Until "false";
Acquire::Languages "none";
APT::Sandbox::User "root";
CONF
}
