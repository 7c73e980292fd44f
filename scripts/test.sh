#!/usr/bin/env bash
# Installs what the tests use, then runs every check and every test. Needs root for mounts and daemons. Works again and again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
summary=target/test-summary.txt
mkdir -p target
rm -f "$summary"
[ "$(id -u)" -eq 0 ] || echo "test.sh: not root: the tests that mount or start containerd will fail (cargo test leaves them out)"

free=$(df --output=avail -BG . | tr -dc '0-9\n' | tail -1) # a full disk ends a build in strange ways: say so before
[ "$free" -ge 12 ] || echo "test.sh: only $free GiB are free here; the build and the tests take about 12"

step() { # step NAME COMMAND…   runs it, shows how long it took, stops everything when it fails
  local name=$1 from=$SECONDS result=0
  shift
  printf '\n==> %s\n' "$name"
  set +e # a subshell of its own, so that a step ends at its first failing command
  (set -e; "$@") </dev/null
  result=$?
  set -e
  if [ "$result" -ne 0 ]; then
    printf '<== %s: FAILED after %d s\n' "$name" $((SECONDS - from)) >&2
    exit 1
  fi
  printf '<== %s: %d s\n' "$name" $((SECONDS - from))
}

fuzz_lock() { # fuzz/ is a workspace of its own, which nothing here compiles: a dependency that it lacks would show only there
  cargo metadata --locked --manifest-path fuzz/Cargo.toml --format-version 1 >/dev/null
}

docs() {
  RUSTDOCFLAGS="-D warnings" cargo doc -q --locked --workspace --no-deps
}

deny() { # licences, bans, sources; advisories where the database can be reached
  export PATH="$PWD/target/tools/bin:$PATH"
  if ! cargo deny --version >/dev/null 2>&1; then
    if ! cargo install -q --debug --locked --root target/tools --target-dir target/tools/build cargo-deny@0.20.2; then
      echo "cargo-deny cannot be installed here: skipped (cargo xtask deps has checked the arrows)"
      return 0
    fi
    rm -rf target/tools/build
  fi
  # It reads every package of the lock file, those too that no build here needs: of optional features and other systems.
  cargo fetch --quiet --locked
  cargo deny --locked --offline check licenses bans sources
  if timeout 60 cargo deny --locked fetch db >target/deny-fetch.txt 2>&1; then
    cargo deny --locked --offline check advisories
  else
    echo "the advisory database cannot be reached: advisories not checked"
  fi
}

examples() { # the examples in the documentation of the crates, which nextest does not run
  cargo test -q --locked --workspace --doc 2>&1 | awk '!/^$|^running 0 tests|^all doctests|^test result: ok. 0 passed|^\.+$/'
}

crates() { # what `cargo publish` would upload can be made of every crate, and is complete; test-long.sh compiles it outside of the workspace
  local package list
  rm -rf target/package
  cargo package -q --locked --offline --no-verify --allow-dirty --workspace \
    --exclude imagelet-testdisk --exclude imagelet-testfault --exclude imagelet-bench --exclude xtask 2>&1 |
    awk '!/no documentation, homepage or repository|ignoring (test|benchmark|example) |^ *\||^ *= note: see https|^$/'
  for package in target/package/*.crate; do
    list=$(tar -tzf "$package")
    for file in Cargo.toml README.md LICENSE; do
      grep -qE "^[^/]+/$file$" <<<"$list" || { echo "$package has no $file" >&2; return 1; }
    done
    ! grep -E '^[^/]+/(tests|benches|proptest-regressions)/|/testdata/' <<<"$list" || { echo "$package has data of tests" >&2; return 1; }
  done
}

slowest() { # the tests that took the longest, and what all took together
  local times=target/test-times.txt
  sed -n 's/.*<testcase name="\([^"]*\)" classname="\([^"]*\)".* time="\([0-9.]*\)".*/\3 \2 \1/p' target/nextest/default/junit.xml | sort -rn >"$times"
  awk 'NR <= 20 { print } { sum += $1 } END { printf "%d s in %d tests; all times stand in target/test-times.txt\n", sum, NR }' "$times"
}

# What .config/nextest.toml leaves out.
left_out=(--skip ::child --skip testdisk_server --skip each_sync_is_missed_elsewhere --skip a_program_outside_of_the_workspace)

nextest() { # one run; its closing lines are added to the summary
  local log=target/test-output.txt result=0
  cargo nextest run --locked --run-ignored all --status-level slow --final-status-level slow "$@" 2>&1 | tee "$log" || result=1
  # From the last rule on: the summary, and the names of what failed. One program: a pipe into one that ends early can break.
  awk '/^(─)+$/ { kept = "" } { kept = kept $0 "\n" } END { printf "%s", kept }' "$log" >>"$summary"
  return "$result"
}

# What layers of containerd that are EROFS files must have in common with directories.
in_both_forms='package(imagelet) & binary(product) & test(/^(dropin_faults|engines_trees|pull_engine|gc_containerd|pods::crowd|pods::life|pods::volumes|pods::security)/) - test(/::mounted::/)'

tests() { # all tests, including those that plain cargo test shows as ignored; the runner's closing lines are kept for the caller of this script
  local log=target/test-output.txt result=0
  # Many tests wait for daemons, so that twice as many as there are cores keep these busy.
  export NEXTEST_TEST_THREADS=${NEXTEST_TEST_THREADS:-$(($(nproc) * 2))}
  if cargo nextest --version >/dev/null 2>&1; then
    : >"$summary"
    nextest --workspace || result=1
    slowest
    # Of the whole workspace again: one crate alone has other features of its dependencies, which would be compiled once more.
    RUNTIME_LAYERS=erofs nextest --workspace --filterset "$in_both_forms" || result=1
  else
    cargo test --locked --workspace --no-fail-fast -- --include-ignored "${left_out[@]}" 2>&1 | tee "$log" || result=1
    grep -E '^test result:|^error: [0-9]+ target' "$log" >"$summary" || true
    awk '/^test result:/ { p += $4; f += $6; i += $8 } END { printf "all test binaries together: %d passed; %d failed; %d ignored\n", p, f, i }' "$log" >>"$summary"
  fi
  return "$result"
}

step "packages" scripts/prerequisites.sh
step "format" cargo fmt --all --check
step "arrows" cargo xtask deps
step "tidy" cargo xtask tidy
step "commits" cargo xtask commits
step "fuzz/Cargo.lock" fuzz_lock
step "lints" cargo clippy -q --locked --workspace --all-targets -- -D warnings
step "documentation" docs
step "examples of the documentation" examples
step "book" scripts/book.sh
step "licences, bans, sources" deny
step "crates" crates
step "Debian root file system" scripts/debian-rootfs.sh
step "Kubernetes control plane (the first time it is built, for about 4 minutes)" scripts/control-plane.sh
step "axe-core" scripts/axe-core.sh
step "promtool" scripts/promtool.sh
step "tests" tests
step "packages, on a clean Debian node" scripts/package-tests.sh

printf '\ntest.sh: everything passed in %d s\n' "$SECONDS"
cat "$summary"
