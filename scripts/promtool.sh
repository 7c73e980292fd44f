#!/usr/bin/env bash
# Prints the path of promtool, which checks the rules of packaging/prometheus and what imagelet serves as metrics. Installs nothing: it is
# unpacked from Debian's package `prometheus` into ${XDG_CACHE_HOME:-~/.cache}/imagelet/promtool, and kept there.
set -euo pipefail

place=${XDG_CACHE_HOME:-$HOME/.cache}/imagelet/promtool
mkdir -p "$place"
exec 9>"$place/lock"
flock 9
if [ ! -x "$place/promtool" ]; then
  work=$(mktemp -d "$place/.fetching.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  cd "$work"
  apt() { apt-get -qq -o Acquire::Retries=5 "$@" >said 2>&1 </dev/null; } # a name server may fail for a moment
  if ! apt download prometheus; then
    apt update && apt download prometheus ||
      { cat said >&2; echo "promtool: Debian's package prometheus cannot be had" >&2; exit 1; }
  fi
  dpkg -x prometheus_*.deb package
  package/usr/bin/promtool --version >&2
  mv package/usr/bin/promtool "$place/promtool"
fi
echo "$place/promtool"
