//! How a node gets its identity: a bootstrap token and a request for a certificate, a token that the server does not know any more,
//! a server other than the one in the kubeconfig, a certificate that is renewed.

use std::fs;
use std::time::Duration;

use serde_json::json;

use crate::support::clock::Clock;
use crate::support::cluster::Cluster;
use crate::support::node::NODE;
use crate::support::tls_front::TlsFront;
use crate::support::{Scratch, secrets};

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
    let scratch = Scratch::new();
    let (own, first) = (scratch.join("own.kubeconfig"), scratch.join("bootstrap.kubeconfig"));
    let mut cluster = Cluster::idle(&json!({"kubeconfig": own, "bootstrapKubeconfig": first}));
    let token = bootstrap(&cluster, "2099-01-01T00:00:00Z");
    let file = cluster.plane.kubeconfig("bootstrap", &json!({"token": token}));
    fs::copy(file, &first).expect("copy a kubeconfig");
    cluster.node.start();
    cluster.is_ready();
    let requests = cluster.plane.kubectl(&["get", "certificatesigningrequests"]);
    assert!(
        requests.contains("kubernetes.io/kube-apiserver-client-kubelet") && requests.contains("Approved,Issued"),
        "{requests}"
    );
    let text = fs::read_to_string(&own).expect("a kubeconfig was written");
    assert!(!text.contains(&token), "the token is for the first time alone");

    // It needs no token any more, nor another request.
    fs::remove_file(&first).expect("remove a kubeconfig");
    cluster.plane.kubectl(&["delete", "secret", "-n", "kube-system", &format!("bootstrap-token-{}", TOKEN.0)]);
    let before = cluster.plane.get(&["certificatesigningrequests"])["items"].as_array().map(Vec::len);
    cluster.restart();
    cluster.is_ready();
    assert_eq!(cluster.plane.get(&["certificatesigningrequests"])["items"].as_array().map(Vec::len), before);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn an_identity_that_is_none_is_said() {
    let scratch = Scratch::new();
    let (own, first) = (scratch.join("own.kubeconfig"), scratch.join("bootstrap.kubeconfig"));
    let mut cluster = Cluster::idle(&json!({"kubeconfig": own, "bootstrapKubeconfig": first}));
    let token = bootstrap(&cluster, "2020-01-01T00:00:00Z");
    let file = cluster.plane.kubeconfig("bootstrap", &json!({"token": token}));
    fs::copy(file, &first).expect("copy a kubeconfig");
    let said = cluster.node.imagelet.run(&["run"]);
    assert_eq!(said.code, Some(77), "{}{}", said.stdout, said.stderr);
    let (line, file) = (said.stderr.lines().last().unwrap_or_default(), first.display().to_string());
    assert!(line.contains(&file) && line.contains("expired") && line.contains("Unauthorized"), "{}", said.stderr);
    assert_ne!(cluster.plane.try_kubectl(&["get", "node", NODE]).code, Some(0));
    assert!(!own.exists(), "there is no identity to keep");

    // A server whose certificate is of another authority gets nothing.
    let mut config = fs::read_to_string(cluster.plane.node(NODE)).expect("a kubeconfig");
    let (authority, other) = (cluster.plane.file("ca.crt"), cluster.plane.file("admin.crt"));
    config = config.replace(&authority.display().to_string(), &other.display().to_string());
    fs::write(&own, config).expect("write a kubeconfig");
    cluster.node.start_only();
    cluster.node.eventually("it says that the certificate is not good", || {
        cluster.node.log().iter().any(|line| line.to_lowercase().contains("certificate"))
    });
    assert_ne!(cluster.plane.try_kubectl(&["get", "node", NODE]).code, Some(0));
}

/// Nearly as long as a certificate of the control plane is good.
const MOST_OF_A_LIFE: Duration = Duration::from_secs(27 * 24 * 3600);

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn renewed_certificate_is_used_by_new_connections() {
    let scratch = Scratch::new();
    let (own, clock) = (scratch.join("own.kubeconfig"), Clock::new(&scratch));
    let mut cluster =
        Cluster::idle(&json!({"kubeconfig": own, "bootstrapKubeconfig": scratch.join("bootstrap.kubeconfig")}));
    bootstrap(&cluster, "2099-01-01T00:00:00Z");
    let front = TlsFront::start(&cluster.plane);
    // A node that joined before, and needs no bootstrap kubeconfig any more.
    let certificate = cluster.node.scene.scratch.join("root/cluster/pki/client.pem");
    fs::create_dir_all(certificate.parent().expect("a directory")).expect("make a directory");
    let parts = ["crt", "key"].map(|end| cluster.plane.file(&format!("system-node-{NODE}.{end}")));
    let parts = parts.map(|part| fs::read_to_string(part).expect("read a certificate or its key"));
    fs::write(&certificate, parts.concat()).expect("write a certificate");
    let server = json!({"server": front.url(), "certificate-authority": cluster.plane.file("ca.crt")});
    let user = json!({"client-certificate": certificate, "client-key": certificate});
    fs::copy(cluster.plane.kubeconfig_of("fronted", &server, &user), &own).expect("copy a kubeconfig");
    let words = clock.words();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    cluster.node.imagelet = cluster.node.imagelet.clone().through(&words);
    cluster.node.start();
    cluster.is_ready();
    let scene = cluster.namespace("renewed");
    scene.running("before");
    let old = front.connections().first().expect("the node is connected").certificate.clone();
    assert!(front.connections().iter().all(|connection| connection.certificate == old));

    clock.set_by(MOST_OF_A_LIFE.as_secs().cast_signed());
    // Certificates are looked at once a minute.
    cluster.node.within(Duration::from_secs(120), "a new certificate is in use, and no old connection", || {
        let connections = front.connections();
        let (of_old, of_new): (Vec<_>, Vec<_>) = connections.iter().partition(|one| one.certificate == old);
        of_old.iter().all(|one| !one.is_open) && of_new.iter().any(|one| one.is_open)
    });
    clock.set_by(0);
    // Requests from now on use these connections.
    scene.running("after");
    let connections = front.connections();
    // By the clock that was ahead the new one may be old as well: then there is a third.
    let mut renewed = connections.iter().skip_while(|one| one.certificate == old);
    assert!(renewed.all(|one| one.certificate != old), "nothing comes by the old one after its renewal");
    assert!(!fs::read_to_string(&certificate).expect("a certificate").contains(&parts[0]));
    scene.clear();
    cluster.node.nothing_is_left();
}
