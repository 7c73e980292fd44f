#!/usr/bin/env bash
# Checks that the public API of the library crates changed no more than their version says: semver.sh [REVISION [PACKAGE…]]. Compares with a
# revision of git, the last tag by default; of all crates that are published, by default. To be run before a release: it documents
# both sides, which takes some minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

base=${1:-$(git describe --tags --abbrev=0 2>/dev/null || true)}
[ -n "$base" ] || { echo "semver: no release is tagged yet: name a revision to compare with" >&2; exit 2; }
git rev-parse --verify --quiet "$base^{commit}" >/dev/null || { echo "semver: git knows no revision $base" >&2; exit 2; }
shift $(($# > 0))
packages=()
for package in "$@"; do packages+=(--package "$package"); done
[ ${#packages[@]} -gt 0 ] || packages=(--workspace --exclude imagelet --exclude xtask --exclude imagelet-bench --exclude imagelet-testdisk --exclude imagelet-testfault)
scripts/tools.sh cargo-semver-checks
PATH="$PWD/target/tools/bin:$PATH" CARGO_TARGET_DIR=$PWD/target/semver cargo semver-checks --baseline-rev "$base" "${packages[@]}"
