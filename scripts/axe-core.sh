#!/usr/bin/env bash
# Fetches axe-core, with which the tests judge how accessible the status page is, and prints the path of axe.min.js. Installs nothing: the
# file lies in ${XDG_CACHE_HOME:-~/.cache}/imagelet/axe-core, named by its version, and is kept. AXE_CORE=FILE names another one.
# axe-core is under the MPL-2.0; it is run by tests and is no part of what is built here.
set -euo pipefail

version=4.14.1
sha512=1477dafa598d8d065f273d6af302aa203c02e83131707b7fa648cd41bd3d6b734f8c22a0dab86ee6a6f64b8afbe804b214d36db85a2826965edfb3a0b9d546b5

say() { echo "axe-core: $*" >&2; }

if [ -n "${AXE_CORE:-}" ]; then
  [ -f "$AXE_CORE" ] || { say "AXE_CORE=$AXE_CORE: there is no such file"; exit 1; }
  realpath "$AXE_CORE"
  exit 0
fi

place=${XDG_CACHE_HOME:-$HOME/.cache}/imagelet/axe-core
mkdir -p "$place"
exec 9>"$place/lock"
flock 9

file=$place/$version/axe.min.js
if [ ! -f "$file" ]; then
  work=$(mktemp -d "$place/.fetching.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  archive=$work/axe-core-$version.tgz
  if command -v npm >/dev/null; then
    (cd "$work" && npm pack --silent "axe-core@$version" >/dev/null)
  else
    curl -fsSL --retry 3 -o "$archive" "https://registry.npmjs.org/axe-core/-/axe-core-$version.tgz"
  fi
  echo "$sha512  $archive" | sha512sum --quiet -c - >&2 || { say "the archive is not the one of version $version"; exit 1; }
  tar -xzf "$archive" -C "$work" package/axe.min.js package/LICENSE
  mv "$work/package" "$place/$version"
  say "fetched version $version"
fi
echo "$file"
