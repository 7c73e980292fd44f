//! The suite of RuntimeService on containerd with runc: real sandboxes, real processes.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use cri_api::testing::conformance::runtime::{Command, Program, READY, RuntimeDeviation, RuntimeHarness, run_all};
use cri_api::{ImageSpec, PodSandboxConfig, RuntimeService};
use cri_grpc::Endpoint;
use cri_grpc::client::{ClientOptions, connect_runtime_service};

use crate::support::Imagelet;
use crate::support::containerd_config;
use crate::support::stage::Stage;

/// The ways in which a version is known to differ.
fn deviations(version: (u32, u32)) -> &'static [RuntimeDeviation] {
    use RuntimeDeviation::{RefusalsAreUnknown, RemovalsRaceWithExits, StoppedSandboxIsUnknown, TakenNamesAreUnknown};
    match version {
        (0..=1, 0..=6) => &[RefusalsAreUnknown, TakenNamesAreUnknown],
        (0..=1, _) => &[RefusalsAreUnknown, TakenNamesAreUnknown, RemovalsRaceWithExits],
        _ => &[RefusalsAreUnknown, StoppedSandboxIsUnknown],
    }
}

/// Cases of calls that a version does not have.
fn not_there((major, minor): (u32, u32)) -> &'static [&'static str] {
    match (major, minor) {
        (0..=1, 0..=6) => &["runtime_config_tells_the_cgroup_driver", "events_are_reported"],
        (0..=1, _) => &["runtime_config_tells_the_cgroup_driver"],
        _ => &[],
    }
}

impl RuntimeHarness for Stage {
    fn name(&self) -> &str {
        "containerd with runc"
    }

    fn service(&self) -> Arc<dyn RuntimeService> {
        Arc::new(self.service.clone())
    }

    fn image(&self) -> ImageSpec {
        ImageSpec::new(&self.image)
    }

    fn fit(&self, config: &mut PodSandboxConfig) {
        let directory = self.logs().join(&config.metadata.uid);
        fs::create_dir_all(&directory).expect("create the directory of the logs");
        config.log_directory = directory.display().to_string();
        config.linux.cgroup_parent = self.containerd.scratch().cgroup();
        config.linux.security.namespaces = Stage::namespaces();
    }

    fn program(&self, _container_name: &str, program: Program) -> Vec<String> {
        let script = match program {
            Program::Sleeps => format!("trap 'exit 143' TERM; echo {READY}; sleep 1000000 & wait"),
            Program::IgnoresSignals => format!("trap '' TERM; echo {READY}; while :; do sleep 1000; done"),
            Program::Ends(code) => format!("exit {code}"),
            Program::Speaks => "echo \"$GREETING\"; echo \"$1\"; echo oh >&2".to_owned(),
        };
        ["/bin/sh", "-c", &script, "program"].map(str::to_owned).into()
    }

    fn command(&self, command: Command) -> Vec<String> {
        match command {
            Command::Speaks => ["/bin/sh", "-c", "echo out; echo err >&2; exit 3"].map(str::to_owned).into(),
            Command::Hangs => ["/bin/sleep", "1000"].map(str::to_owned).into(),
        }
    }

    fn log(&self, path: &str) -> Option<String> {
        Some(fs::read_to_string(path).expect("read a log"))
    }

    fn deviations(&self) -> &[RuntimeDeviation] {
        deviations(containerd_config::version())
    }

    fn case_timeout(&self) -> Duration {
        Duration::from_secs(120)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root and daemons: scripts/test.sh"]
async fn debians_containerd_conforms_as_a_runtime() {
    let report = run_all(&Stage::new().await).await;
    report.assert_passed();
    assert_eq!(report.not_applicable(), not_there(containerd_config::version()), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root and daemons: scripts/test.sh"]
async fn containerd_behind_imagelet_conforms_as_well() {
    let mut stage = Stage::new().await;
    let (socket, behind) = (stage.scene.scratch.join("between.sock"), stage.containerd.endpoint());
    let between = Imagelet::on(&stage.scene.scratch.join("between"));
    let between = between.global("--image-endpoint", &behind).global("--runtime-endpoint", &behind);
    let _agent = between.serve(&socket);
    let endpoint = Endpoint::parse(&format!("unix://{}", socket.display())).expect("an endpoint");
    stage.service = connect_runtime_service(&endpoint, ClientOptions::default()).await.expect("connect");
    let report = run_all(&stage).await;
    report.assert_passed();
    assert_eq!(report.not_applicable(), not_there(containerd_config::version()), "{report}");
}
