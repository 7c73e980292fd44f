#!/usr/bin/env bash
# The image of imagelet on containerd: as a container, and as the pod of the DaemonSet in packaging/kustomize, which imagelet's own agent runs here.
# Runs inside of the node, from scripts/package-tests.sh.
set -euo pipefail
cd /srv/test

name=$(ctr -n k8s.io images import imagelet-image.tar | awk '/^unpacking / { print $2 }')
echo "imported $name"
ctr -n k8s.io run --rm --read-only "$name" version /usr/bin/imagelet version

mkdir -p /etc/imagelet/manifests /etc/imagelet/documents
cat >/etc/imagelet/config.yaml <<'YAML'
apiVersion: imagelet.dev/v1alpha1
kind: ImageletConfiguration
documentsDirectory: /etc/imagelet/documents
YAML
# The template of the DaemonSet as a pod; its ConfigMap as a document.
awk -v RS='---\n' '/\nkind: ConfigMap\n/' daemonset.yaml >/etc/imagelet/documents/config.yaml
{
  printf 'apiVersion: v1\nkind: Pod\n'
  awk '/^---$/ { there = 0 } /^  template:$/ { there = 1; next } there && !/^    / { there = 0 } there { print substr($0, 5) }' daemonset.yaml |
    sed -e 's/^metadata:$/metadata:\n  name: imagelet\n  namespace: imagelet/' -e '/serviceAccountName:/d' -e '/^  nodeSelector:$/,+1d'
} >/etc/imagelet/manifests/imagelet.yaml
systemctl start imagelet
for _ in $(seq 60); do
  if imagelet pods -n imagelet 2>&1 | grep -q '1/1 *Running'; then break; fi
  sleep 1
done
imagelet pods -n imagelet | tee pods
grep -q '1/1 *Running' pods || { imagelet describe -n imagelet imagelet; imagelet logs -n imagelet imagelet; exit 1; }
address=$(imagelet pods -n imagelet -o jsonpath='{.items[0].status.podIP}')
exec 3<>"/dev/tcp/$address/9095"
printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
cat <&3 >metrics
grep -m 1 '^kubelet_image_garbage_collected_total\|^imagelet_' metrics
rm /etc/imagelet/manifests/imagelet.yaml
for _ in $(seq 60); do
  [ -n "$(imagelet pods -q)" ] || break
  sleep 1
done
systemctl stop imagelet
