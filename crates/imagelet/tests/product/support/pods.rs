//! Pods on a containerd of the test, over CRI: with the node's network, so that they need no plugin, and in a cgroup that is
//! cleared up with containerd's scratch, whatever becomes of the test.

use std::collections::BTreeMap;
use std::time::Duration;

use cri_api::{
    ContainerConfig, ContainerMetadata, ImageSpec, LinuxPodSandboxConfig, LinuxSandboxSecurityContext, NamespaceMode,
    NamespaceOptions, PodSandboxConfig, PodSandboxMetadata, RuntimeService as _,
};
use cri_grpc::client::{ClientOptions, RemoteRuntimeService, connect_runtime_service};
use serde_json::json;
use tokio::runtime::Runtime;

use super::Packing;
use super::containerd::Containerd;
use super::images::{self, Image};
use super::scene::Scene;

/// The runtime service of a containerd.
pub(crate) struct Pods {
    runtime: Runtime,
    service: RemoteRuntimeService,
    parent: String,
}

/// A pod with one container that runs.
pub(crate) struct RunningPod {
    sandbox: String,
    container: String,
}

impl Pods {
    /// Connects.
    #[track_caller]
    pub(crate) fn on(containerd: &Containerd) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let endpoint = cri_grpc::Endpoint::parse(&containerd.endpoint()).expect("an endpoint");
        let service = runtime.block_on(connect_runtime_service(&endpoint, ClientOptions::default())).expect("connect");
        Self { runtime, service, parent: containerd.scratch().cgroup() }
    }

    /// Runs a pod whose one container is of this image, which must be present.
    #[track_caller]
    pub(crate) fn run(&self, name: &str, image: &str) -> RunningPod {
        let namespaces = NamespaceOptions { network: NamespaceMode::Node, ..NamespaceOptions::default() };
        // Those of a kubelet.
        let labels = [("namespace", "shop"), ("name", name), ("uid", &format!("uid-of-{name}"))];
        let labels: BTreeMap<String, String> =
            labels.iter().map(|(key, value)| (format!("io.kubernetes.pod.{key}"), (*value).to_owned())).collect();
        let config = PodSandboxConfig {
            labels: labels.clone(),
            metadata: PodSandboxMetadata {
                name: name.to_owned(),
                uid: format!("uid-of-{name}"),
                namespace: "shop".to_owned(),
                attempt: 0,
            },
            linux: LinuxPodSandboxConfig {
                cgroup_parent: self.parent.clone(),
                security: LinuxSandboxSecurityContext { namespaces: namespaces.clone(), ..Default::default() },
                ..LinuxPodSandboxConfig::default()
            },
            ..PodSandboxConfig::default()
        };
        let mut container = ContainerConfig {
            metadata: ContainerMetadata { name: "main".to_owned(), attempt: 0 },
            image: ImageSpec::new(image),
            labels: labels.clone(),
            ..ContainerConfig::default()
        };
        container.linux.security.namespaces = namespaces;
        self.runtime.block_on(async {
            let sandbox = self.service.run_pod_sandbox(&config, "").await.expect("run a sandbox");
            let created = self.service.create_container(&sandbox, &container, &config).await;
            let container = created.expect("create a container");
            self.service.start_container(&container).await.expect("start a container");
            RunningPod { sandbox, container }
        })
    }

    /// Ends the container and leaves it there.
    #[track_caller]
    pub(crate) fn stop(&self, pod: &RunningPod) {
        let stopped = self.runtime.block_on(self.service.stop_container(&pod.container, Duration::ZERO));
        stopped.expect("stop a container");
    }

    /// Takes a pod away.
    #[track_caller]
    pub(crate) fn remove(&self, pod: &RunningPod) {
        self.runtime.block_on(async {
            self.service.stop_pod_sandbox(&pod.sandbox).await.expect("stop a sandbox");
            self.service.remove_pod_sandbox(&pod.sandbox).await.expect("remove a sandbox");
        });
    }
}

/// An image that runs and does nothing, with a layer of the caller's on top.
#[track_caller]
pub(crate) fn idle_image(s: &Scene, more: &[images::Layer]) -> Image {
    let root = tempfile::tempdir_in(s.scratch.path()).expect("a directory");
    images::busybox_tree(root.path());
    let mut layers = vec![s.layout.layer(root.path(), Packing::Gzip)];
    layers.extend_from_slice(more);
    let config = json!({"Entrypoint": ["/bin/sleep", "1000000"], "Env": ["PATH=/bin"]});
    s.layout.image_for(&layers, &config, &images::platform())
}
