#!/usr/bin/env bash
# The long forms of suites, which scripts/test.sh has in short: test-long.sh [PART…]; without a part, all of them. Needs root,
# takes hours. What the parts have found stands in target/long-figures.txt, and is shown at the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
figures=target/long-figures.txt
processes=(--skip ::child --skip testdisk_server) # what other tests start

suite() { # suite PACKAGE BINARY FILTER   runs tests and keeps the lines of their figures
  local log=target/long-output.txt result=0
  if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest run --locked --profile long --run-ignored all -p "$1" --test "$2" "$3" 2>&1 | tee "$log" || result=1
  else
    cargo test --locked -p "$1" --test "$2" "$3" -- --nocapture --include-ignored "${processes[@]}" 2>&1 | tee "$log" || result=1
  fi
  grep -E ' cuts tried| kills| faults;| left out| seen, | replicas: | rounds with |hollow fleet: |pre-pull: ' "$log" | sed 's/^ *//' >>"$figures" || true
  return "$result"
}

part_power() { # every flush of the recorded days, and POWER_CUT_LOSSES different losses after each; days without each of their syncs
  IMAGELET_POWER_CUT_LOSSES=${POWER_CUT_LOSSES:-40} suite imagelet-image-service engine power_cut::
}

part_kills() { # KILLS of pulls and removals in each shape, of the store and of the whole program; SEED is another set of moments
  [ -z "${SEED:-}" ] || export IMAGELET_SEED=$SEED
  export IMAGELET_KILLS=${KILLS:-1000}
  suite imagelet-store store crash::a_kill_leaves
  suite imagelet product kill::
}

part_dropin() { # DROPIN_KILLS of imagelet and of containerd in pulls into containerd's store, and every power cut there; CONTAINERD is another containerd
  export IMAGELET_DROPIN_KILLS=${DROPIN_KILLS:-200} IMAGELET_POWER_CUT_LOSSES=${DROPIN_CUTS:-1}
  suite imagelet product dropin_faults::
}

part_cluster() { # CLUSTER_KILLS of imagelet and of the API server in the lives of a cluster's pods, EVICTION_KILLS in evictions; SEED is another set of moments
  [ -z "${SEED:-}" ] || export IMAGELET_SEED=$SEED
  local result=0
  IMAGELET_CLUSTER_KILLS=${CLUSTER_KILLS:-100} suite imagelet product cluster::kills:: || result=1
  IMAGELET_EVICTION_KILLS=${EVICTION_KILLS:-20} suite imagelet product cluster::eviction::kills || result=1
  return "$result"
}

part_soak() { # SOAK_MINUTES of pulls, removals, collections and thirty pods: memory, open files, threads and tasks of the agent
  IMAGELET_SOAK_MINUTES=${SOAK_MINUTES:-30} suite imagelet product pods::soak::
}

part_fuzz() { # FUZZ_MINUTES of CPU for every parser of foreign input
  local table result=0
  table=$(mktemp)
  scripts/fuzz.sh "${FUZZ_MINUTES:-60}" | tee "$table" || result=1
  cat "$table" >>"$figures"
  rm "$table"
  return "$result"
}

part_faults() { # every error at every system call that the store and that the program's commands make, in both shapes
  export IMAGELET_FAULTS=all
  suite imagelet-store store faults::
  suite imagelet product faults::
}

part_containerds() { # every suite that needs containerd, with those of other Debian suites, and with the erofs snapshotter where one has it
  local result=0
  scripts/containerd-of.sh ${CONTAINERD_SUITES:-bookworm trixie sid} || result=1
  CONTAINERD_SNAPSHOTTER=erofs scripts/containerd-of.sh ${EROFS_SUITES:-sid} || result=1
  grep -E '^\| (containerd|all)' docs/containerd-versions.md >>"$figures" || true
  return "$result"
}

part_workloads() { # a Deployment of REPLICAS rolled out and back on a node of a cluster, and the other workloads; KUBEBUILDER_ASSETS is another control plane
  REPLICAS=${REPLICAS:-30} suite imagelet product cluster::workloads::
}

part_fleet() ( # HOLLOW_NODES hollow nodes with HOLLOW_SETS sets, a rollout in 20 waves; and the ways to bring images to a node before its pods
  result=0
  # A thousand unoptimised daemons in one process do not keep up with their watches.
  export CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_TARGET_DIR=$PWD/target/optimised
  IMAGELET_HOLLOW_NODES=${HOLLOW_NODES:-1000} IMAGELET_HOLLOW_SETS=${HOLLOW_SETS:-200} suite imagelet product cluster::hollow:: || result=1
  suite imagelet product cluster::prepull:: || result=1
  exit "$result"
)

part_library() { # the program in examples/pull-and-read, built outside of the workspace from the packages of the crates
  suite imagelet-engine library outside::
}

part_reproducible() { # the program built twice, in two directories; 40 minutes
  scripts/reproducible.sh imagelet | tee -a "$figures"
}

parts=(power kills dropin cluster workloads fleet faults fuzz containerds library reproducible)
[ $# -gt 0 ] || set -- "${parts[@]}"
for part in "$@"; do
  declare -F "part_$part" >/dev/null || { echo "usage: test-long.sh [${parts[*]}]" >&2; exit 2; }
done
mkdir -p target
: >"$figures"
scripts/prerequisites.sh
result=0
for part in "$@"; do
  printf '\n==> %s\n' "$part"
  from=$SECONDS
  if "part_$part"; then end="" ; else end=", FAILED"; result=1; fi
  echo "$part: $((SECONDS - from)) s$end" >>"$figures"
done
printf '\n'
cat "$figures"
exit "$result"
