//! Settings of a node that belongs to a Kubernetes cluster: its credentials, and how it registers. Names are the kubelet's.

use std::path::PathBuf;

use cluster::node::{DEFAULT_TAINT, Label, Taint};
use serde_json::{Value, json};

use crate::config::declare::settings;
use crate::config::kind::{Form, Kind, count, list, path, text, texts, unset};
use crate::config::value::{Raw, Wrong};

settings! {
    /// The cluster of this node.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Cluster() {
        Cluster {
            /// `None`: the node belongs to no cluster.
            kubeconfig: Option<PathBuf> = None =>
                "kubeconfig", "kubeconfig", unset(path("FILE")),
                "Credentials of this node at an API server: with them `run` is a node of its cluster, and runs the pods that it has for this node [default: none, the node belongs to no cluster; with \
                 bootstrapKubeconfig cluster/kubeconfig in the root]";
            bootstrap_kubeconfig: Option<PathBuf> = None =>
                "bootstrapKubeconfig", "bootstrap-kubeconfig", unset(path("FILE")),
                "Credentials, such as a bootstrap token, with which a node that has no client certificate yet asks for one; the certificate is renewed before it ends, and kubeconfig is written [default: none]";
            labels: Vec<Label> = Vec::new() =>
                "nodeLabels", "node-labels", list("KEY=VALUE", "a list of labels such as rack=7; of those below kubernetes.io and k8s.io a node may set a few only"),
                "Labels that the node has from its registration; may be given again [default: none]";
            taints: Vec<Taint> = DEFAULT_TAINT.parse().into_iter().collect() =>
                "registerWithTaints", "register-with-taints", taints(),
                "Taints that the node has from its creation, since not every pod of a cluster can run here; may be given again; \
                 empty: none";
            provider_id: String = String::new() =>
                "providerID", "provider-id", text("ID", "a text"),
                "Name of this machine at its cloud provider, set when the Node is created [default: none]", kubelet();
            /// Zero: no port.
            port: u16 = 10250 =>
                "port", "port", count(0..=65535),
                "Port at which a node of a cluster answers the API server over TLS: logs, exec, port-forward, figures; 0: none", kubelet();
            /// `None`: a client needs a token.
            client_ca_file: Option<PathBuf> = None =>
                "clientCAFile", "client-ca-file", unset(path("FILE")),
                "Authorities whose client certificates are believed at that port, such as the cluster's own; without it \
                 clients need tokens that the API server knows [default: none]";
        }
    }
}

/// Taints, separated by commas. An empty list is shown, since it is not the default.
fn taints() -> Kind<Vec<Taint>> {
    let read = |raw: Raw<'_>| {
        let parsed = raw.words()?.iter().map(|word| word.trim().parse()).collect::<Result<Vec<Taint>, _>>();
        parsed.map_err(|error| Wrong(format!("a list of taints such as dedicated=team:NoSchedule ({error})")))
    };
    let show = |taints: &Vec<Taint>| taints.iter().map(|taint| json!(taint.to_string())).collect::<Value>();
    Kind::new(Form::list("KEY=VALUE:EFFECT", ',', texts()), read, show)
}
