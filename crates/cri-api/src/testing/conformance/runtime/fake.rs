//! [`FakePods`]: the fake runtime as a harness of this suite, as it is or behind something that passes its calls on.

use std::sync::Arc;

use super::{Command, Program, RuntimeHarness};
use crate::testing::{FakeExec, FakeImage, FakeImageService, FakeProcess, FakeRuntimeService};
use crate::{ExecSyncOutput, ImageSpec, PodSandboxConfig, RuntimeService};

/// The fake, and the service that is judged.
pub struct FakePods {
    fake: FakeRuntimeService,
    service: Arc<dyn RuntimeService>,
}

impl FakePods {
    /// Creates a fake that has the image of the suite.
    #[must_use]
    pub fn fake() -> FakeRuntimeService {
        let images = FakeImageService::new();
        images.preload("conformance/busybox:1", &FakeImage::new("busybox"));
        FakeRuntimeService::new().with_images(&images)
    }

    /// Judges `service`, which passes its calls on to `fake`, or is the fake itself.
    #[must_use]
    pub fn new(fake: &FakeRuntimeService, service: Arc<dyn RuntimeService>) -> Self {
        Self { fake: fake.clone(), service }
    }
}

impl RuntimeHarness for FakePods {
    fn name(&self) -> &str {
        "fake runtime"
    }

    fn service(&self) -> Arc<dyn RuntimeService> {
        Arc::clone(&self.service)
    }

    fn image(&self) -> ImageSpec {
        ImageSpec::new("conformance/busybox:1")
    }

    fn fit(&self, config: &mut PodSandboxConfig) {
        config.log_directory = format!("/fake/logs/{}", config.metadata.uid);
    }

    fn program(&self, container_name: &str, program: Program) -> Vec<String> {
        let output = ExecSyncOutput { stdout: b"out\n".into(), stderr: b"err\n".into(), exit_code: 3 };
        let commands =
            [(self.command(Command::Speaks), FakeExec::Ends(output)), (self.command(Command::Hangs), FakeExec::Hangs)];
        let process = FakeProcess {
            ends: match program {
                Program::Ends(code) => Some(code),
                Program::Speaks => Some(0),
                Program::Sleeps | Program::IgnoresSignals => None,
            },
            ignores_stop: program == Program::IgnoresSignals,
            commands: commands.into(),
        };
        self.fake.behave(container_name, process);
        vec!["program".into()]
    }

    fn command(&self, command: Command) -> Vec<String> {
        vec![format!("{command:?}")]
    }
}
