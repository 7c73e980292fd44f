#!/usr/bin/env bash
# What the demos share: how they talk, and how they make images from this machine's own files. Sourced, not run, with the demo's
# directory below target in $demo; after `begin_layout` the images lie as an OCI layout in $layout.
set -euo pipefail

layout=$demo/layout
. "$(dirname "${BASH_SOURCE[0]}")/layout-lib.sh"

say() {
  if [ -t 1 ]; then printf '\n\033[1m# %s\033[0m\n' "$*"; else printf '\n# %s\n' "$*"; fi
}
show() { # show COMMAND…   prints it as one would type it, then runs it
  printf '$ %s\n' "$(printf '%s ' "${@/#"$PWD/"/}" | sed 's/ $//')"
  "$@" </dev/null
}
need_cargo() {
  command -v cargo >/dev/null || { echo "demo: cargo is missing: install Rust first (https://rustup.rs)" >&2; exit 1; }
}

tools_layer() { # busybox with all its applets
  mkdir -p "$demo"/tools/{bin,dev,proc,sys,tmp,root}
  chmod 1777 "$demo/tools/tmp"
  cp "$(command -v busybox)" "$demo/tools/bin/busybox"
  local applet
  for applet in $("$demo/tools/bin/busybox" --list | grep -vx busybox); do ln -s busybox "$demo/tools/bin/$applet"; done
  layer tools
}
settings_layer() { # a few files of this machine, and a user
  mkdir -p "$demo/settings/etc"
  local file
  for file in os-release debian_version services protocols hosts; do
    if [ -r "/etc/$file" ]; then cp -L "/etc/$file" "$demo/settings/etc/$file"; fi
  done
  echo 'root:x:0:0:root:/root:/bin/sh' >"$demo/settings/etc/passwd"
  echo 'root:x:0:' >"$demo/settings/etc/group"
  layer settings
}

listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
