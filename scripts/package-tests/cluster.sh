#!/usr/bin/env bash
# Makes a cluster of two nodes out of what is in their trees: cluster.sh NUMBER, inside of node NUMBER. The first one has the control plane, the
# DNS of pods, and a registry with TLS for registry.example. imagelet is the kubelet of both. Runs from scripts/package-tests.sh.
set -euo pipefail
cd /srv/test

number=$1
here=/srv/test/cluster
server=192.0.2.1
programs=/srv/control-plane

until_ok() { # until_ok COMMAND…
  for _ in $(seq 300); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.2
  done
  "$@"
}
certificate() { # certificate NAME SUBJECT [EXTENSION]   signed by the authority of the cluster
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "$2" -keyout "$here/$1.key" -out "$here/$1.csr" 2>/dev/null
  openssl x509 -req -in "$here/$1.csr" -CA "$here/ca.crt" -CAkey "$here/ca.key" -CAcreateserial -days 30 \
    -extfile <(echo "${3:-extendedKeyUsage=clientAuth}") -out "$here/$1.crt" 2>/dev/null
}
kubeconfig() { # kubeconfig NAME SUBJECT
  certificate "$1" "$2"
  cat >"$here/$1.kubeconfig" <<YAML
apiVersion: v1
kind: Config
current-context: cluster
clusters: [{name: cluster, cluster: {server: "https://$server:6443", certificate-authority: $here/ca.crt}}]
users: [{name: user, user: {client-certificate: $here/$1.crt, client-key: $here/$1.key}}]
contexts: [{name: cluster, context: {cluster: cluster, user: user}}]
YAML
}
service() { # service NAME COMMAND…
  local name=$1
  shift
  systemd-run -q --unit="$name" "$@"
}

ip link set cluster0 up
ip address add "192.0.2.$number/24" dev cluster0
# The address of the API server in the cluster, without a kube-proxy.
for chain in PREROUTING OUTPUT; do
  iptables -t nat -A "$chain" -d 10.96.0.1 -p tcp --dport 443 -j DNAT --to-destination "$server:6443"
done

if [ "$number" = 1 ]; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=cluster -keyout "$here/ca.key" -out "$here/ca.crt" 2>/dev/null
  certificate server /CN=kube-apiserver "subjectAltName=IP:$server,IP:127.0.0.1,IP:10.96.0.1,DNS:kubernetes.default.svc"
  openssl genrsa -out "$here/accounts.key" 2048 2>/dev/null
  openssl rsa -in "$here/accounts.key" -pubout -out "$here/accounts.pub" 2>/dev/null
  kubeconfig admin /O=system:masters/CN=admin
  kubeconfig manager /O=system:masters/CN=system:kube-controller-manager
  kubeconfig scheduler /CN=system:kube-scheduler
  for node in 1 2; do kubeconfig "node-$node" "/O=system:nodes/CN=system:node:node-$node"; done
  kubeconfig kubelet-client /O=system:masters/CN=kubelet-client

  cat >"$here/registry.yml" <<YAML
version: 0.1
storage: {filesystem: {rootdirectory: /srv/registry-data}}
http: {addr: "$server:443", tls: {certificate: $here/registry.crt, key: $here/registry.key}}
YAML
  service registry-tls /srv/docker-registry serve "$here/registry.yml"
  service dns dnsmasq -k --no-resolv --no-hosts --bind-interfaces --listen-address="$server" --address="/registry.example/$server" --local=/local/
  service etcd "$programs/etcd" --data-dir=/srv/etcd --unsafe-no-fsync
  service kube-apiserver "$programs/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 --bind-address=0.0.0.0 --advertise-address="$server" \
    --secure-port=6443 --tls-cert-file="$here/server.crt" --tls-private-key-file="$here/server.key" --client-ca-file="$here/ca.crt" \
    --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$here/accounts.pub" \
    --service-account-signing-key-file="$here/accounts.key" --service-cluster-ip-range=10.96.0.0/16 --authorization-mode=Node,RBAC \
    --enable-admission-plugins=NodeRestriction --allow-privileged=true --endpoint-reconciler-type=none \
    --kubelet-preferred-address-types=InternalIP --kubelet-client-certificate="$here/kubelet-client.crt" --kubelet-client-key="$here/kubelet-client.key"
  until_ok kubectl --kubeconfig "$here/admin.kubeconfig" get --raw /readyz
  service kube-controller-manager "$programs/kube-controller-manager" --kubeconfig="$here/manager.kubeconfig" --leader-elect=false --secure-port=0 \
    --root-ca-file="$here/ca.crt" --service-account-private-key-file="$here/accounts.key"
  service kube-scheduler "$programs/kube-scheduler" --kubeconfig="$here/scheduler.kubeconfig" --leader-elect=false --secure-port=0

  # Images of a user.
  for name in web:1 web:2 proxy:1; do
    imagelet push -q "oci:/srv/layout:$name" "registry.example/$name"
  done
fi

mkdir -p /etc/cni/net.d
cp -n /usr/share/doc/imagelet/examples/10-pods.conflist /etc/cni/net.d/
systemctl restart containerd
cat >/etc/imagelet/config.yaml <<YAML
apiVersion: imagelet.dev/v1alpha1
kind: ImageletConfiguration
kubeconfig: $here/node-$number.kubeconfig
nodeName: node-$number
nodeIP: [192.0.2.$number]
registerWithTaints: []
clientCAFile: $here/ca.crt
clusterDNS: [$server]
clusterDomain: cluster.local
YAML
systemctl start imagelet
