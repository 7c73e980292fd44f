#!/usr/bin/env bash
# Runs the suites that need containerd with other versions of it: containerd-of.sh [SUITE|DIR]… [-- FILTER…]   (bookworm trixie sid)
# SUITE is one of Debian, whose package is unpacked and not installed (scripts/containerd-packages.sh); `bookworm` is what
# scripts/prerequisites.sh installs. DIR has another containerd, with its shim and ctr, in it or in DIR/usr/bin. CONTAINERD_SNAPSHOTTER=erofs runs all with that
# snapshotter. FILTER is one of cargo nextest; without it, the suites of the profile `containerd` in .config/nextest.toml, and what
# they found is kept in target/containerd/results, from which `cargo xtask containerd-versions` writes docs/containerd-versions.md.
# Needs root and cargo-nextest. A suite that no mirror has is said and passed over.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ "$(id -u)" -eq 0 ] || { echo "containerd-of: needs root" >&2; exit 77; }
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}

wanted=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do wanted+=("$1"); shift; done
[ $# -eq 0 ] || shift
[ ${#wanted[@]} -gt 0 ] || wanted=(bookworm trixie sid)
snapshotter=${CONTAINERD_SNAPSHOTTER:-overlayfs}
results=target/containerd/results
mkdir -p "$results"
junit=target/nextest/containerd/junit.xml

keep() { # keep SUITE VERSION   what the tests of a version found, one a line
  local file=$results/$1-$snapshotter.txt
  {
    printf 'suite %s\nversion %s\nsnapshotter %s\n' "$1" "$2" "$snapshotter"
    sed -nE -e 's/^ *<testcase name="([^"]*)" classname="([^"]*)".*\/>$/passed \2 \1/p' \
      -e 's/^ *<testcase name="([^"]*)" classname="([^"]*)".*[^/]>$/failed \2 \1/p' "$junit"
  } >"$file.new"
  mv "$file.new" "$file"
}

result=0
for suite in "${wanted[@]}"; do
  case $suite in
    bookworm) directory='' ;;
    */* | .) directory=$(cd "$suite" && pwd) suite=$(basename "$directory") ;;
    *)
      directory=$(scripts/containerd-packages.sh "$suite")
      [ -n "$directory" ] || { echo "containerd-of: $suite: skipped"; continue; }
      ;;
  esac
  programs=$directory/usr/bin
  [ -x "$programs/containerd" ] || programs=$directory
  [ -n "$directory" ] || programs=$(dirname "$(command -v containerd)")
  said=$("$programs/containerd" --version)
  version=$(awk '{ print $3 }' <<<"$said" | sed 's/[~+].*//')
  printf '\n==> containerd %s of %s, %s\n' "$version" "$suite" "$snapshotter"
  if [ $# -gt 0 ]; then
    CONTAINERD=$directory cargo nextest run --locked --profile containerd --run-ignored all "$@" || result=1
    continue
  fi
  rm -f "$junit"
  CONTAINERD=$directory cargo nextest run --locked --profile containerd --run-ignored all --workspace || result=1
  [ ! -s "$junit" ] || keep "$suite" "$version"
done
[ $# -gt 0 ] || cargo xtask containerd-versions
exit "$result"
