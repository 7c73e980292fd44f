//! How a node comes to its identity: a bootstrap token and a request for a certificate, a token that nobody knows any more, a server that is
//! another one than the kubeconfig says.

use serde_json::json;

use crate::support::cluster::Cluster;
use crate::support::node::NODE;
use crate::support::secrets;

/// Id and secret of a bootstrap token.
const TOKEN: (&str, &str) = ("07401b", "f395accd246ae52d");

/// Makes a bootstrap token that is good until then, and gives its bearers the rights that kubeadm gives them.
#[track_caller]
fn bootstrap(cluster: &Cluster, until: &str) -> String {
    let (id, secret) = TOKEN;
    secrets::note_bare(secret);
    cluster.plane.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system"},
        "stringData": {"token-id": id, "token-secret": secret, "expiration": until,
                       "usage-bootstrap-authentication": "true", "auth-extra-groups": "system:bootstrappers:test"},
    }));
    let right = |name: &str, role: &str, group: &str| {
        cluster.plane.try_kubectl(&[
            "create",
            "clusterrolebinding",
            name,
            &format!("--clusterrole={role}"),
            &format!("--group={group}"),
        ]);
    };
    right("bootstrap", "system:node-bootstrapper", "system:bootstrappers:test");
    right("approve", "system:certificates.k8s.io:certificatesigningrequests:nodeclient", "system:bootstrappers:test");
    right("renew", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes");
    format!("{id}.{secret}")
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_bootstrap_token_becomes_a_certificate() {
    // The kubeconfig is not there yet: imagelet writes it.
    let scratch = crate::support::Scratch::new();
    let (own, first) = (scratch.join("own.kubeconfig"), scratch.join("bootstrap.kubeconfig"));
    let mut cluster = Cluster::idle(&json!({"kubeconfig": own, "bootstrapKubeconfig": first}));
    let token = bootstrap(&cluster, "2099-01-01T00:00:00Z");
    let file = cluster.plane.kubeconfig("bootstrap", &json!({"token": token}));
    std::fs::copy(file, &first).expect("copy a kubeconfig");
    cluster.node.start();
    cluster.is_ready();
    let requests = cluster.plane.kubectl(&["get", "certificatesigningrequests"]);
    assert!(
        requests.contains("kubernetes.io/kube-apiserver-client-kubelet") && requests.contains("Approved,Issued"),
        "{requests}"
    );
    let text = std::fs::read_to_string(&own).expect("a kubeconfig was written");
    assert!(!text.contains(&token), "the token is for the first time alone");

    // From now on it needs no token, nor another request.
    std::fs::remove_file(&first).expect("remove a kubeconfig");
    cluster.plane.kubectl(&["delete", "secret", "-n", "kube-system", &format!("bootstrap-token-{}", TOKEN.0)]);
    let before = cluster.plane.get(&["certificatesigningrequests"])["items"].as_array().map(Vec::len);
    cluster.restart();
    cluster.is_ready();
    assert_eq!(cluster.plane.get(&["certificatesigningrequests"])["items"].as_array().map(Vec::len), before);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn an_identity_that_is_none_is_said() {
    let scratch = crate::support::Scratch::new();
    let (own, first) = (scratch.join("own.kubeconfig"), scratch.join("bootstrap.kubeconfig"));
    let mut cluster = Cluster::idle(&json!({"kubeconfig": own, "bootstrapKubeconfig": first}));
    let token = bootstrap(&cluster, "2020-01-01T00:00:00Z");
    let file = cluster.plane.kubeconfig("bootstrap", &json!({"token": token}));
    std::fs::copy(file, &first).expect("copy a kubeconfig");
    cluster.node.start_only();
    cluster.node.eventually("it says that the token is not good", || {
        cluster.node.log().iter().any(|line| line.contains("Unauthorized") || line.contains("401"))
    });
    assert_ne!(cluster.plane.try_kubectl(&["get", "node", NODE]).code, Some(0));
    cluster.node.kill();

    // A server whose certificate is of another authority gets nothing.
    let mut config = std::fs::read_to_string(cluster.plane.node(NODE)).expect("a kubeconfig");
    let (authority, other) = (cluster.plane.file("ca.crt"), cluster.plane.file("admin.crt"));
    config = config.replace(&authority.display().to_string(), &other.display().to_string());
    std::fs::write(&own, config).expect("write a kubeconfig");
    cluster.node.start_only();
    cluster.node.eventually("it says that the certificate is not good", || {
        cluster.node.log().iter().any(|line| line.to_lowercase().contains("certificate"))
    });
    assert_ne!(cluster.plane.try_kubectl(&["get", "node", NODE]).code, Some(0));
}
