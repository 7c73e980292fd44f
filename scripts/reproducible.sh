#!/usr/bin/env bash
# Builds a package of the workspace twice, in two directories, and compares what comes of it byte by byte: reproducible.sh [PACKAGE]
# (imagelet-oci, which takes a minute; imagelet is the whole, 20 minutes each time). Built as scripts/package.sh builds; of the last commit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/release-lib.sh

package=${1:-imagelet-oci}
work=$PWD/target/reproducible
rm -rf "$work"
flags=()
[ "$package" != imagelet ] || flags=(--bin imagelet)
for directory in one another/and-deeper; do
  tree=$work/$directory
  mkdir -p "$tree"
  git archive HEAD | tar -C "$tree" -xf -
  (
    cd "$tree"
    RUSTFLAGS="--remap-path-prefix=$tree=/imagelet --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo" CARGO_TARGET_DIR=$tree/target \
      cargo rustc -q --locked --release -p "$package" "${flags[@]}" -- "${release_flags[@]}"
    cd target/release
    find . -maxdepth 1 -type f ! -name '*.d' ! -name '.*' -exec sha256sum {} +
  ) | sort >"$work/$(basename "$directory").sums"
done
cat "$work/one.sums"
[ -s "$work/one.sums" ] || { echo "reproducible: $package made nothing" >&2; exit 1; }
diff "$work/one.sums" "$work/and-deeper.sums" || { echo "reproducible: the second build of $package differs" >&2; exit 1; }
rm -rf "$work/one" "$work/another"
echo "reproducible: both builds of $package are the same"
