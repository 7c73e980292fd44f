//! Settings of a node that belongs to a Kubernetes cluster: its credentials, and how it registers. Names are the kubelet's.

use std::path::PathBuf;

use cluster::node::{DEFAULT_TAINT, Label, Taint};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::flag::Empty::Shown;
use crate::config::flag::Group::Cluster as Group;
use crate::config::flag::flag;
use crate::config::form::{As, Count, List};

/// The cluster of this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Cluster {
    /// `None`: the node belongs to no cluster.
    #[schemars(
        description = "Credentials of this node at an API server: with them `run` is a node of its cluster, and runs the pods that it \
                       has for this node [default: none, the node belongs to no cluster; with bootstrapKubeconfig cluster/kubeconfig \
                       in the root]",
        extend("imagelet" = flag(Group, "kubeconfig").value("FILE"))
    )]
    pub(crate) kubeconfig: Option<PathBuf>,
    #[serde(rename = "bootstrapKubeconfig")]
    #[schemars(
        description = "Credentials, such as a bootstrap token, with which a node that has no client certificate yet asks for one; the \
                       certificate is renewed before it ends, and kubeconfig is written [default: none]",
        extend("imagelet" = flag(Group, "bootstrap-kubeconfig").value("FILE"))
    )]
    pub(crate) bootstrap_kubeconfig: Option<PathBuf>,
    #[serde(rename = "nodeLabels", with = "As::<List<Label>>")]
    #[schemars(
        description = "Labels that the node has from its registration; may be given again [default: none]",
        extend("imagelet" = flag(Group, "node-labels").value("KEY=VALUE")
            .allowed("a list of labels such as rack=7; of those below kubernetes.io and k8s.io a node may set a few only"))
    )]
    pub(crate) labels: Vec<Label>,
    #[serde(rename = "registerWithTaints", with = "As::<List<Taint>>")]
    #[schemars(
        description = "Taints that the node has from its creation, since not every pod of a cluster can run here; may be given again; \
                       empty: none",
        extend("imagelet" = flag(Group, "register-with-taints").value("KEY=VALUE:EFFECT")
            .allowed("a list of taints such as dedicated=team:NoSchedule").empty(Shown))
    )]
    pub(crate) taints: Vec<Taint>,
    #[serde(rename = "providerID")]
    #[schemars(
        description = "Name of this machine at its cloud provider, set when the Node is created [default: none]",
        extend("imagelet" = flag(Group, "provider-id").value("ID").allowed("a text").kubelet())
    )]
    pub(crate) provider_id: String,
    /// Zero: no port.
    #[serde(with = "As::<Count<u16, 0, 65535>>")]
    #[schemars(
        description = "Port at which a node of a cluster answers the API server over TLS: logs, exec, port-forward, figures; 0: none",
        extend("imagelet" = flag(Group, "port").kubelet())
    )]
    pub(crate) port: u16,
    /// `None`: a client needs a token.
    #[serde(rename = "clientCAFile")]
    #[schemars(
        description = "Authorities whose client certificates are believed at that port, such as the cluster's own; without it clients \
                       need tokens that the API server knows [default: none]",
        extend("imagelet" = flag(Group, "client-ca-file").value("FILE"))
    )]
    pub(crate) client_ca_file: Option<PathBuf>,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            bootstrap_kubeconfig: None,
            labels: Vec::new(),
            taints: DEFAULT_TAINT.parse().into_iter().collect(),
            provider_id: String::new(),
            port: 10250,
            client_ca_file: None,
        }
    }
}
