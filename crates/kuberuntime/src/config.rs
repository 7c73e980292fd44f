//! Configs of a pod for the runtime: `sandbox_config` and `container_config` turn a pod, and what the node adds to it,
//! into CRI's configurations. Pure: volumes, addresses, documents and resolver files are arguments, and a pod that is
//! not valid was refused before.

mod container;
mod dns;
mod hosts;
mod resources;
mod sandbox;
mod security;

pub(crate) use container::{ContainerInput, container_config};
pub use dns::ClusterDns;
pub(crate) use dns::dns_config;
pub(crate) use hosts::{hosts_file, managed_hosts_file};
pub use resources::NodeResources;
pub(crate) use sandbox::{
    PodHostname, SandboxInput, container_log_path, pod_hostname, pod_log_directory, pod_log_directory_name,
    sandbox_config,
};
pub(crate) use security::{ImageUser, verify_run_as_non_root};

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
