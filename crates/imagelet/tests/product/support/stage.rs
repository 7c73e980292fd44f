//! A containerd that runs pods of one busybox image, and the runtime service of it: what tests of pods start from. Pods have
//! the node's network, and a cgroup that is cleared up with containerd's scratch, whatever becomes of the test.

use std::fs;
use std::path::PathBuf;

use cri_api::{
    ContainerConfig, ContainerMetadata, ContainerState, ContainerStatus, ImageService as _, ImageSpec, NamespaceMode,
    NamespaceOptions, PodSandboxConfig, PodSandboxMetadata, PullImageRequest, RuntimeService as _,
};
use cri_grpc::Endpoint;
use cri_grpc::client::{ClientOptions, RemoteRuntimeService, connect_image_service, connect_runtime_service};

use super::Containerd;
use super::containerd::Setup;
use super::pods::idle_image;
use super::scene::Scene;

/// The stage. Fields are dropped in this order: containerd before the registry.
pub(crate) struct Stage {
    pub(crate) service: RemoteRuntimeService,
    pub(crate) containerd: Containerd,
    /// The image, by name.
    pub(crate) image: String,
    pub(crate) scene: Scene,
}

/// The work of a container's process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Does<'a> {
    /// Runs until it is asked to end.
    Sleep,
    /// Says something and ends with a code.
    Say(&'a str, i32),
    /// Runs a shell script.
    Run(&'a str),
}

impl Stage {
    pub(crate) async fn new() -> Self {
        let scene = Scene::new();
        let image = scene.registry.push(&scene.layout, &idle_image(&scene, &[]), "infra/busybox:1");
        let setup = Setup { sandbox_image: Some(image.clone()), ..Setup::default() };
        let containerd = Containerd::with(scene.registry.host(), setup);
        let endpoint = Endpoint::parse(&containerd.endpoint()).expect("an endpoint");
        let images = connect_image_service(&endpoint, ClientOptions::default()).await.expect("connect");
        images.pull_image(PullImageRequest::new(&image)).await.expect("pull the image of the pods");
        let service = connect_runtime_service(&endpoint, ClientOptions::default()).await.expect("connect");
        Self { service, containerd, image, scene }
    }

    /// Where pods log: `NAMESPACE_NAME_UID` below it.
    pub(crate) fn logs(&self) -> PathBuf {
        self.scene.scratch.join("log/pods")
    }

    /// The namespaces that pods and containers share.
    pub(crate) fn namespaces() -> NamespaceOptions {
        NamespaceOptions { network: NamespaceMode::Node, ..NamespaceOptions::default() }
    }

    /// The config of a sandbox; its uid is `uid-of-NAME`.
    pub(crate) fn pod(&self, name: &str, attempt: u32) -> PodSandboxConfig {
        let uid = format!("uid-of-{name}");
        let directory = self.logs().join(format!("shop_{name}_{uid}"));
        fs::create_dir_all(&directory).expect("create the directory of the logs");
        let mut config = PodSandboxConfig {
            metadata: PodSandboxMetadata { name: name.into(), uid, namespace: "shop".into(), attempt },
            log_directory: directory.display().to_string(),
            ..PodSandboxConfig::default()
        };
        config.linux.cgroup_parent = self.containerd.scratch().cgroup();
        config.linux.security.namespaces = Self::namespaces();
        config
    }

    /// A sandbox that is ready.
    pub(crate) async fn sandbox(&self, config: &PodSandboxConfig) -> String {
        self.service.run_pod_sandbox(config, "").await.expect("run a sandbox")
    }

    /// A container that was started, with the kubelet's labels and log.
    pub(crate) async fn container(
        &self,
        (sandbox, of): (&str, &PodSandboxConfig),
        name: &str,
        attempt: u32,
        does: Does<'_>,
    ) -> String {
        let script = match does {
            Does::Sleep => "trap 'exit 143' TERM; sleep 1000000 & wait".to_owned(),
            Does::Say(text, code) => format!("echo {text}; exit {code}"),
            Does::Run(script) => script.to_owned(),
        };
        let labels = [
            (kuberuntime::labels::POD_NAME, &of.metadata.name),
            (kuberuntime::labels::POD_NAMESPACE, &of.metadata.namespace),
            (kuberuntime::labels::POD_UID, &of.metadata.uid),
            (kuberuntime::labels::CONTAINER_NAME, &name.to_owned()),
        ];
        let log_path = format!("{name}/{attempt}.log");
        let directory = PathBuf::from(&of.log_directory).join(name);
        fs::create_dir_all(directory).expect("create the directory of the log");
        let mut config = ContainerConfig {
            metadata: ContainerMetadata { name: name.into(), attempt },
            image: ImageSpec::new(&self.image),
            command: ["/bin/sh", "-c", &script].map(str::to_owned).into(),
            labels: labels.map(|(key, value)| (key.to_owned(), value.clone())).into(),
            log_path,
            ..ContainerConfig::default()
        };
        config.linux.security.namespaces = Self::namespaces();
        let id = self.service.create_container(sandbox, &config, of).await.expect("create a container");
        self.service.start_container(&id).await.expect("start a container");
        id
    }

    /// Waits until a container has ended.
    pub(crate) async fn ended(&self, id: &str) -> ContainerStatus {
        let deadline = tokio::time::Instant::now() + super::process::PATIENCE;
        loop {
            let status = self.service.container_status(id, false).await.expect("the status of a container");
            if status.state == ContainerState::Exited {
                return status;
            }
            assert!(tokio::time::Instant::now() < deadline, "container {id} does not end: {status:?}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
}
