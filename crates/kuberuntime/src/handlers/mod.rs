//! [`Handlers`]: what is done to a container from outside, by a hook or by a probe: a program in it, a request over HTTP, a
//! connection, a request over gRPC, a pause. Decides nothing from the answers.

use std::sync::Arc;
use std::time::Duration;

use cri_api::RuntimeService;

use crate::pod::{Container, ContainerPort, EnvVar, Handler, Probe};

/// Runs hooks and asks probes.
pub struct Handlers {
    runtime: Arc<dyn RuntimeService>,
}

/// The container that is meant.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// Id of the container.
    pub container_id: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The ports that it names.
    pub ports: &'a [ContainerPort],
    /// Its variables: those with a literal value stand in for `$(VAR)` in the commands of probes.
    pub env: &'a [EnvVar],
    /// Address of the pod; that of the node where it has the node's network. `None`: it has none yet.
    pub ip: Option<&'a str>,
    /// The pod, for the log.
    pub pod: &'a str,
}

impl<'a> Target<'a> {
    /// A container of a pod whose address is `ip`.
    #[must_use]
    pub fn new(container: &'a Container, container_id: &'a str, ip: Option<&'a str>) -> Self {
        Self { container_id, name: &container.name, ports: &container.ports, env: &container.env, ip, pod: "" }
    }

    /// With the name of the pod, as the log says it.
    #[must_use]
    pub fn in_pod(self, pod: &'a str) -> Self {
        Self { pod, ..self }
    }
}

/// Why a hook did not go well.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HookError(pub String);

/// What one question came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All is well.
    Success,
    /// All is well, but somebody should read what was said.
    Warning,
    /// It is not.
    Failure,
    /// The question itself could not be asked; it counts for nothing.
    Unknown,
}

impl Handlers {
    /// Over this runtime.
    #[must_use]
    pub fn new(runtime: Arc<dyn RuntimeService>) -> Self {
        Self { runtime }
    }

    /// Runs a hook to its end, or until `limit` has passed.
    ///
    /// # Errors
    /// It failed, or took too long.
    pub async fn run_hook(
        &self,
        handler: &Handler,
        target: &Target<'_>,
        limit: Option<Duration>,
    ) -> Result<(), HookError> {
        let _ = (&self.runtime, handler, target, limit);
        Err(HookError("hooks are not run yet".to_owned()))
    }

    /// Asks once, within the probe's own limit: the answer, and what was said, for people.
    pub async fn ask(&self, probe: &Probe, target: &Target<'_>) -> (Answer, String) {
        let _ = (probe, target);
        (Answer::Unknown, "probes are not asked yet".to_owned())
    }
}
