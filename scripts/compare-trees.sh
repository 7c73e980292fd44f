#!/usr/bin/env bash
# Compares the whole tree of images, as imagelet makes it in every mode, with what containerd and umoci make of them:
#   compare-trees.sh [--registry HOST:PORT | --corpus OCI-LAYOUT] [--binary FILE] [--work DIR] [--only MODE]… IMAGE…
# Images are those of the registry (app:latest), or tags of the layout. Looked at: types, modes, owners, times of modification,
# sizes, link targets, which names are one file, device numbers, extended attributes, digests of all content. One line for each
# image and mode; ends with 1 when a tree differs in a way that docs/differences.md does not list. Needs root and what
# scripts/prerequisites.sh installs. DIR should be on a disk with room for three copies of the largest image.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# One mode a line: a name, and what the pull is given. What the program does not know is skipped with a line.
modes=(
  "default|"
  "relaxed|--durability=relaxed"
  "keep-blobs|--keep-blobs=true"
  "dir|--layer-format=dir"
  "erofs|--layer-format=erofs"
  "one-core|"
)

registry='' corpus='' binary=target/release/imagelet work='' images=() only=' '
while [ $# -gt 0 ]; do
  case "$1" in
    --registry) registry=$2; shift 2 ;;
    --corpus) corpus=$2; shift 2 ;;
    --binary) binary=$2; shift 2 ;;
    --work) work=$2; shift 2 ;;
    --only) only="$only$2 "; shift 2 ;; # a mode, containerd or umoci; the default mode is always there to be compared with
    -*) sed -n '2,8s/^# //p' "$0" >&2; exit 2 ;;
    *) images+=("$1"); shift ;;
  esac
done
[ ${#images[@]} -gt 0 ] && [ -n "$registry$corpus" ] || { sed -n '2,8s/^# //p' "$0" >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || { echo "compare-trees: needs root: it mounts and starts containerd" >&2; exit 77; }
[ -x "$binary" ] || { echo "compare-trees: $binary is not there: cargo build --release" >&2; exit 2; }

made=$(mktemp -d "${work:-${TMPDIR:-/tmp}}/compare-trees.XXXXXX")
work=$made disk=$made pids=()
# shellcheck source=scripts/bench-lib.sh
. scripts/bench-lib.sh
finish() {
  local mounted
  # The one that was mounted last goes first.
  awk -v below="$made/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | tac | while read -r mounted; do
    umount -l "$mounted" 2>/dev/null || true
  done
  [ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$made"
}
trap finish EXIT

if [ -n "$corpus" ]; then
  start_registry
  for image in "${images[@]}"; do
    skopeo copy -q --dest-tls-verify=false "oci:$corpus:$image" "docker://$registry/$image:latest"
  done
  images=("${images[@]/%/:latest}")
fi

# Entries of a tree, one a line, sorted: path, then everything that is compared. Times that no layer can have are `now`.
started=$(date +%s)
picture() { # picture DIRECTORY FILE
  (
    cd "$1"
    find . -type d -printf 'd %m %U:%G %T@ %p\n' -o -type f -printf 'f %m %U:%G %T@ %s %n %p\n' \
      -o -type l -printf 'l %U:%G %T@ %n %p -> %l\n' -o -printf '%y %m %U:%G %T@ %n %p\n' |
      awk -v started="$started" '{ split($4, t, "."); at = $1 == "l" ? 3 : 4; split($at, t, "."); if (t[1] >= started) $at = "now"; print }'
    find . \( -type b -o -type c \) -exec stat -c 'device %t:%T %n' {} +
    # Names of one file, by the first of them.
    find . ! -type d -links +1 -printf '%i %p\n' | LC_ALL=C sort -k2 |
      awk '{ inode = $1; sub(/^[0-9]+ /, ""); if (!(inode in first)) first[inode] = $0; print "same " first[inode] " = " $0 }'
    find . -type f -print0 | xargs -0 -r -n 512 -P 2 sha256sum
    getfattr -R -h -d -m - -e hex . 2>/dev/null | awk '/^# file: / { path = $0 } /=/ && !/^# file/ && !/^trusted\.overlay/ { print path " " $0 }'
  ) | LC_ALL=C sort >"$2"
}

# What differs and is not listed in docs/differences.md: times that the peer made itself, the root's own attributes in containerd,
# link counts of names that an upper layer replaced.
unknown() { # unknown OURS THEIRS   prints the lines that differ for another reason
  diff "$1" "$2" | grep '^[<>]' |
    awk '
      # A line without its time, and without its number of links.
      { line = $0; side = substr(line, 1, 1); line = substr(line, 3); n = split(line, f, " ")
        if (f[1] == "d" && f[n] == ".") next
        key = line
        if (f[1] == "d") { now[side, f[2] " " f[3] " " f[5]] = f[4]; key = f[1] " " f[2] " " f[3] " " substr(line, index(line, f[4]) + length(f[4]) + 1); time[key] = time[key] " " f[4] }
        if (f[1] == "f") { key = f[1] " " f[2] " " f[3] " " f[4] " " f[5] " " substr(line, index(line, f[5] " " f[6]) + length(f[5] " " f[6]) + 1) }
        seen[key] = seen[key] side; text[key] = text[key] "\n" $0 }
      END { for (key in seen) {
          if (seen[key] ~ /<.*>|>.*</ && (key ~ /^f / || time[key] ~ /now/)) continue
          print substr(text[key], 2)
        } }'
}

pull() { # pull STORE IMAGE OPTION…   into a store of its own
  local store=$1 image=$2
  shift 2
  env -i "${one_core[@]}" "$binary" --root "$store" "$@" pull "$image" >/dev/null
}

mkdir -p "$work/certs.d/$registry" "$work/shown"
printf 'server = "http://%s"\n[host."http://%s"]\n  capabilities = ["pull", "resolve"]\n' "$registry" "$registry" >"$work/certs.d/$registry/hosts.toml"
cat >"$work/containerd.toml" <<TOML
version = 2
root = "$work/containerd/root"
state = "$work/containerd/state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.opt"]
[grpc]
  address = "$work/c.sock"
TOML
containerd -c "$work/containerd.toml" -l info >"$work/containerd.log" 2>&1 </dev/null &
pids+=($!)
line_of "$work/containerd.log" 'containerd successfully booted' $! >/dev/null
ctr() { command ctr --address "$work/c.sock" "$@"; }

wanted() { # wanted MODE
  [ "$only" = ' ' ] || [ "$1" = default ] || case "$only" in *" $1 "*) ;; *) return 1 ;; esac
}

failed=0
line() { # line IMAGE WHAT FILE-OF-DIFFERENCES ENTRIES   one line, and what differs below it
  local count
  count=$(wc -l <"$3")
  if [ "$count" -eq 0 ]; then
    printf '%-22s %-22s same, %s lines compared\n' "$1" "$2" "$4"
  else
    printf '%-22s %-22s DIFFERS in %s lines\n' "$1" "$2" "$count"
    head -20 "$3" | sed 's/^/    /'
    failed=1
  fi
}

for image in "${images[@]}"; do
  name=$registry/$image first=''
  for mode in "${modes[@]}"; do
    IFS='|' read -r called options <<<"$mode"
    wanted "$called" || continue
    one_core=()
    [ "$called" != one-core ] || one_core=("$(command -v taskset)" -c 0)
    if [ -n "$options" ] && ! env -i "$binary" --help 2>/dev/null | grep -q -- "${options%%=*}" \
      && ! env -i "$binary" config --reference 2>/dev/null | grep -q -- "${options%%=*}"; then
      printf '%-22s %-22s skipped: this build has no %s\n' "$image" "$called" "${options%%=*}"
      continue
    fi
    # shellcheck disable=SC2086
    if ! pull "$work/store" "$name" $options 2>"$work/said"; then
      printf '%-22s %-22s %s\n' "$image" "$called" "$(tail -1 "$work/said")"
      # A decompressor that was not built in, or a file system that cannot share, says so: no tree, no difference.
      grep -qE 'not built|not allowed|cannot|not support' "$work/said" || failed=1
      rm -rf "$work/store"
      continue
    fi
    env -i "$binary" --root "$work/store" mount "$name" "$work/shown" >/dev/null
    picture "$work/shown" "$work/tree"
    env -i "$binary" --root "$work/store" unmount "$work/shown" >/dev/null
    rm -rf "$work/store"
    if [ -z "$first" ]; then
      first=$work/first
      mv "$work/tree" "$first"
      printf '%-22s %-22s %s lines\n' "$image" "$called" "$(wc -l <"$first")"
      continue
    fi
    diff "$first" "$work/tree" >"$work/differs" || true
    line "$image" "$called" "$work/differs" "$(wc -l <"$first")"
  done

  if wanted containerd; then
    ctr images pull --hosts-dir "$work/certs.d" "$name" >/dev/null 2>"$work/said" || { cat "$work/said" >&2; exit 1; }
    ctr images mount "$name" "$work/shown" >/dev/null
    picture "$work/shown" "$work/tree"
    # With its snapshot, which has the name of the directory: the next image would be shown this one's.
    ctr images unmount --rm "$work/shown" >/dev/null
    ctr images rm --sync "$name" >/dev/null
    unknown "$first" "$work/tree" >"$work/differs" || true
    line "$image" "containerd $(containerd --version | awk '{ print $3 }')" "$work/differs" "$(wc -l <"$first")"
  fi

  wanted umoci || continue
  skopeo copy -q --src-tls-verify=false "docker://$name" "oci:$work/copy:image"
  if grep -rqs 'tar+zstd' "$work/copy/blobs" --include='*' -m 1 --binary-files=without-match; then
    printf '%-22s %-22s skipped: umoci reads no zstd\n' "$image" umoci
  else
    umoci unpack --image "$work/copy:image" "$work/bundle" >/dev/null 2>"$work/said" || { cat "$work/said" >&2; exit 1; }
    picture "$work/bundle/rootfs" "$work/tree"
    unknown "$first" "$work/tree" >"$work/differs" || true
    line "$image" umoci "$work/differs" "$(wc -l <"$first")"
  fi
  rm -rf "$work/copy" "$work/bundle"
done
exit "$failed"
