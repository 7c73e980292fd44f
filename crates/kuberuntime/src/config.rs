//! Configs of a pod for the runtime: [`sandbox_config`] and [`container_config`] turn a pod, and what the node adds to it,
//! into CRI's configurations. Pure: volumes, addresses, documents and resolver files are handed in by whoever starts
//! things, and a pod that is not valid was refused before.

mod container;
mod dns;
mod hosts;
mod resources;
mod sandbox;
mod security;

pub use container::{ContainerInput, container_config};
pub use dns::{ClusterDns, dns_config};
pub use hosts::{hosts_file, managed_hosts_file};
pub use resources::{NodeResources, linux_resources};
pub use sandbox::{
    HostnameError, PodHostname, SandboxInput, container_log_path, pod_hostname, pod_log_directory, sandbox_config,
};
pub use security::{ImageUser, NonRootError, verify_run_as_non_root};

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
