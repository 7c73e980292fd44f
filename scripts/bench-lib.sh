#!/usr/bin/env bash
# What the benchmarks share: a registry on loopback, and waiting for daemons. Sourced, not run, with a directory for small files in
# $work, one on the measured disk in $disk, and the pids of daemons that end with the benchmark in the array `pids`.
set -euo pipefail

line_of() { # line_of FILE PATTERN PID   waits until a line of a log says it, and prints the line
  local line
  until line=$(grep -s -m 1 -- "$2" "$1"); do
    kill -0 "$3" 2>/dev/null || { cat "$1" >&2; echo "bench: a daemon did not start" >&2; return 1; }
    sleep 0.05
  done
  echo "$line"
}

start_registry() { # starts a registry whose blobs lie on the disk; sets `registry` to its host and port
  cat >"$work/registry.yml" <<YAML
version: 0.1
log: {level: info, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: $disk/registry}}
http: {addr: '127.0.0.1:0', secret: loopback}
YAML
  docker-registry serve "$work/registry.yml" >"$work/registry.log" 2>&1 </dev/null &
  pids+=($!)
  local line
  line=$(line_of "$work/registry.log" 'listening on' $!)
  registry=$(sed -E 's/.*listening on (127\.0\.0\.1:[0-9]+).*/\1/' <<<"$line")
}
