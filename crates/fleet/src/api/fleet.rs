//! [`Fleet`]: what all sets share. There is one object, named `default`.
#![expect(unreachable_pub, reason = "kube derives schemas from copies of the types inside of functions")]

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::Duration;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schemas;

/// Limits and settings of all sets.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "imagelet.dev",
    version = "v1alpha1",
    kind = "Fleet",
    plural = "fleets",
    category = "imagelet",
    status = "FleetStatus",
    derive = "PartialEq",
    doc = "Fleet has what all ImageSets of the cluster share. There is one object, named default; without it the defaults apply.",
    validation = ("self.metadata.name == 'default'", "the only Fleet is named default"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes", description = "Nodes of the cluster"),
    printcolumn(name = "Reporting", type_ = "integer", json_path = ".status.reporting", description = "Nodes that report their images"),
    printcolumn(name = "Sets", type_ = "integer", json_path = ".status.imageSets", description = "ImageSets of the cluster"),
    printcolumn(name = "Paused", type_ = "boolean", json_path = ".spec.paused"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct FleetSpec {
    /// Number, or percentage of all nodes, that pull at the same time for all sets together; at least one. A node that pulls for
    /// two sets counts twice. Without this field each set has its own limit alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::optional_share")]
    pub max_concurrent: Option<IntOrString>,
    /// Starts no further nodes for any set. Nodes that have started go on.
    #[serde(default)]
    pub paused: bool,
    /// Handling of the taint `imagelet.dev/images-not-ready`.
    #[serde(default)]
    pub startup_taint: StartupTaint,
}

/// Handling of the taint that keeps pods from a node without its images.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartupTaint {
    /// Time after the creation of a node at which the taint is removed although images are missing. An event reports it.
    #[serde(default = "quarter_of_an_hour")]
    #[schemars(schema_with = "schemas::duration")]
    pub deadline: Duration,
}

impl Default for StartupTaint {
    fn default() -> Self {
        Self { deadline: quarter_of_an_hour() }
    }
}

fn quarter_of_an_hour() -> Duration {
    std::time::Duration::from_secs(900).into()
}

/// State of the fleet, written by the controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetStatus {
    /// Generation that the controller has handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Nodes of the cluster. The nodes of a large cluster report less often.
    #[serde(default)]
    #[schemars(schema_with = "schemas::count")]
    pub nodes: u32,
    /// Nodes with a report.
    #[serde(default)]
    #[schemars(schema_with = "schemas::count")]
    pub reporting: u32,
    /// ImageSets of the cluster.
    #[serde(default)]
    #[schemars(schema_with = "schemas::count")]
    pub image_sets: u32,
}
