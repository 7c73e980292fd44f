#!/usr/bin/env bash
# Types docs/tasks/fleet.md in a cluster of two nodes, of which the second one has a small disk. Runs inside of the first node, from
# scripts/package-tests.sh, where cluster.sh has started the control plane and a registry.
set -euo pipefail
cd /srv/test

# shellcheck source=typed.sh
. ./typed.sh

nothing_refused() { # after each step: what the page installed has all the rights that it asks for
  if grep -i -e forbidden -e unauthorized /var/log/pods/imagelet-fleet_*/*/*.log 2>/dev/null; then exit 1; fi
}

export KUBECONFIG=/srv/test/cluster/admin.kubeconfig
until [ "$(kubectl get nodes -o name | wc -l)" = 2 ]; do sleep 0.5; done
kubectl wait --for=condition=Ready nodes --all --timeout=120s
type_page tasks/fleet.md nothing_refused
