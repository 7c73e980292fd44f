#!/usr/bin/env bash
# Installs programs of cargo that the checks use into target/tools, once each: tools.sh NAME…   (cargo-deb cargo-cyclonedx mdbook cargo-semver-checks)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

declare -A versions=([cargo-deb]=3.8.0 [cargo-cyclonedx]=0.5.9 [mdbook]=0.5.4 [cargo-semver-checks]=0.51.0)
for name in "$@"; do
  version=${versions[$name]:?tools.sh: no tool is called $name}
  if "target/tools/bin/$name" --version 2>/dev/null | grep -qF "$version" || "target/tools/bin/$name" "${name#cargo-}" --version 2>/dev/null | grep -qF "$version"; then
    continue
  fi
  echo "tools: installing $name $version"
  cargo install -q --debug --locked --root target/tools --target-dir target/tools/build "$name@$version"
done
rm -rf target/tools/build
