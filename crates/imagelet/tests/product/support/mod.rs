//! Shared parts of the product tests: real daemons, real images, the built program, and trees to compare.

pub(crate) mod api_proxy;
pub(crate) mod browser;
pub(crate) mod cgroup;
pub(crate) mod cli;
pub(crate) mod clock;
pub(crate) mod cluster;
pub(crate) mod collector;
pub(crate) mod containerd;
pub(crate) mod containerd_config;
pub(crate) mod control_plane;
pub(crate) mod crio;
pub(crate) mod disk;
#[cfg(target_arch = "x86_64")]
pub(crate) mod faulty;
pub(crate) mod front;
pub(crate) mod frozen;
pub(crate) mod gate;
pub(crate) mod gc;
pub(crate) mod grpc_faults;
pub(crate) mod home;
pub(crate) mod images;
pub(crate) mod leaks;
pub(crate) mod manifests;
pub(crate) mod nasty;
pub(crate) mod network;
pub(crate) mod node;
pub(crate) mod pod_history;
pub(crate) mod podman;
pub(crate) mod pods;
pub(crate) mod process;
pub(crate) mod pty;
pub(crate) mod random;
pub(crate) mod registry;
pub(crate) mod scene;
pub(crate) mod scratch;
pub(crate) mod secrets;
pub(crate) mod stage;
pub(crate) mod start_log;
pub(crate) mod systemd;
pub(crate) mod tls_front;
pub(crate) mod tree;

pub(crate) use cli::Imagelet;
pub(crate) use containerd::Containerd;
pub(crate) use images::{Layout, Packing};
pub(crate) use registry::DockerRegistry;
pub(crate) use scratch::Scratch;

/// A runtime for servers of a test's own, apart from the test's thread.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}
