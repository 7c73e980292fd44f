#!/usr/bin/env bash
# Types the pages of docs/tasks that are about one node. In between, mistakes.sh types what new users type wrong. Runs inside of the node, from
# scripts/package-tests.sh.
set -euo pipefail
cd /srv/test

pages=(tasks/pull-faster.md tasks/never-fill-the-disk.md tasks/run-pods.md)
# shellcheck source=typed.sh
. ./typed.sh
# shellcheck source=mistakes.sh
. ./mistakes.sh

mistakes_after() { # mistakes_after STEP
  case $1 in
    tasks/pull-faster.md:04.sh) mistakes_of_pulls ;;
    tasks/run-pods.md:02.sh) mistakes_of_pods ;;
  esac
}

for page in "${pages[@]}"; do
  type_page "$page" mistakes_after
  systemctl disable -q --now imagelet-serve.socket imagelet-serve.service
done
systemctl disable -q --now imagelet.service
