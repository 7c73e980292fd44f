#!/usr/bin/env bash
# How a release program is built. Sourced, not run, by package.sh and reproducible.sh.
set -euo pipefail

# Arguments for the last crate's compiler: a static program.
release_flags=(-C target-feature=+crt-static)
