//! Settings of the images that a cluster's ImageSets keep on this node.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::flag::Group::Cluster as Group;
use crate::config::flag::flag;

/// The ImageSets of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct FleetSettings {
    /// `None`: no ImageSets are followed.
    #[serde(rename = "fleet.kubeconfig")]
    #[schemars(
        description = "Credentials at an API server: with them an agent (`serve`, `run`) keeps the images of the ImageSets that select \
                       this node present and pinned, and reports them [default: none, no ImageSets are followed]",
        extend("imagelet" = flag(Group, "fleet-kubeconfig").value("FILE"))
    )]
    pub(crate) kubeconfig: Option<PathBuf>,
    #[serde(rename = "fleet.inCluster")]
    #[schemars(
        description = "The same with the service account of the pod in which the agent runs",
        extend("imagelet" = flag(Group, "fleet-in-cluster"))
    )]
    pub(crate) in_cluster: bool,
    #[serde(rename = "fleet.namespace")]
    #[schemars(
        description = "Namespace of the pull secrets that ImageSets name [default: that of the kubeconfig's context]",
        extend("imagelet" = flag(Group, "fleet-namespace").value("NAME").allowed("the name of a namespace"))
    )]
    pub(crate) namespace: String,
}
