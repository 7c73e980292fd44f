//! Settings of the images that a cluster's ImageSets keep on this node.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::flag::Group::Cluster as Group;
use crate::config::flag::flag;

/// Value of `fleet.kubeconfig` for an agent that runs in a pod: the credentials are those of the pod's service account.
const IN_CLUSTER: &str = "in-cluster";

/// The ImageSets of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct FleetSettings {
    /// `None`: no ImageSets are followed.
    #[serde(rename = "fleet.kubeconfig")]
    #[schemars(
        description = "Credentials at an API server: with them an agent (`serve`, `run`) keeps the images of the ImageSets that select \
                       this node present and pinned, and reports them. `in-cluster`: the service account of the agent's pod [default: none, \
                       no ImageSets are followed]",
        extend("imagelet" = flag(Group, "fleet-kubeconfig").value("FILE"))
    )]
    pub(crate) kubeconfig: Option<PathBuf>,
    #[serde(rename = "fleet.namespace")]
    #[schemars(
        description = "Namespace of the pull secrets that ImageSets name [default: that of the kubeconfig's context]",
        extend("imagelet" = flag(Group, "fleet-namespace").value("NAME").allowed("the name of a namespace"))
    )]
    pub(crate) namespace: String,
}

impl FleetSettings {
    /// Returns true if the agent uses the service account of its pod.
    pub(crate) fn is_in_cluster(&self) -> bool {
        self.kubeconfig.as_deref() == Some(Path::new(IN_CLUSTER))
    }
}
