//! Builds the services of long-running processes from the configuration: the node and its pods, a node of a cluster, ports, the
//! status page, reloads. Called by `serve`, `run` and the commands that run pods once.

pub(crate) mod cluster;
mod cluster_objects;
pub(crate) mod cluster_pods;
pub(crate) mod image_set_list;
pub(crate) mod image_sets;
pub(crate) mod kubelet_api;
pub(crate) mod node;
pub(crate) mod reload;
pub(crate) mod serving;
pub(crate) mod status_page;
pub(crate) mod waiting;
pub(crate) mod watchdog;
