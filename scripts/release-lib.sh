#!/usr/bin/env bash
# How a release program is built. Sourced, not run, by package.sh and reproducible.sh.
set -euo pipefail

# Arguments for the last crate's compiler: a static program, in which functions with the same instructions stand once, and whose relocations
# are packed, which a static program undoes itself.
release_flags=(-C target-feature=+crt-static -C link-arg=-Wl,--icf=all -C link-arg=-Wl,-z,pack-relative-relocs)
