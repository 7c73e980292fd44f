//! Failures: why a pod could not be observed, ended or removed ([`PodRuntimeError`]), why a sync stops early
//! ([`Halt`]), and why a container was not started ([`StartFailure`]).

use cri_api::Kind;
use image_manager::EnsureImageError;

/// Reason for which a sync stops early.
#[derive(Debug)]
pub(super) enum Halt {
    /// A stop was requested.
    Stopped,
    /// A step failed, with the message.
    Failed(String),
    /// A step failed, with the message that an event of the pod has.
    Recorded(String),
}

pub(super) type SyncStep<T = ()> = Result<T, Halt>;

/// Prefix of the runtime's error if it could not mount an image volume.
pub(super) const IMAGE_VOLUME_MOUNT_FAILED: &str = "ImageVolumeMountFailed";

/// Failure to start a container.
#[derive(Clone, Debug)]
pub(super) struct StartFailure {
    /// Reason of the waiting state.
    pub(super) reason: &'static str,
    /// Message of the waiting state.
    pub(super) message: String,
    /// Message of the event `Failed`; `None` where another event reported the failure.
    pub(super) event: Option<String>,
}

impl StartFailure {
    /// Creates a failure whose event and waiting state have the same message.
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { reason, event: Some(message.clone()), message }
    }

    pub(super) fn config(message: impl Into<String>) -> Self {
        Self::new("CreateContainerConfigError", message)
    }
}

/// As in the kubelet, the event has the reason and the waiting state has the message.
impl From<&EnsureImageError> for StartFailure {
    fn from(error: &EnsureImageError) -> Self {
        Self { reason: error.reason(), message: error.message(), event: Some(error.reason().to_owned()) }
    }
}

/// Reason for which a start stops early.
pub(super) enum StartError {
    Halted(Halt),
    Started(StartFailure),
}

impl From<Halt> for StartError {
    fn from(halt: Halt) -> Self {
        Self::Halted(halt)
    }
}

impl From<StartFailure> for StartError {
    fn from(failure: StartFailure) -> Self {
        Self::Started(failure)
    }
}

pub(super) type StartResult<T = ()> = Result<T, StartError>;

/// Failure to observe, end or remove a pod.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct PodRuntimeError {
    pub what: String,
    /// Cause of the failure.
    #[source]
    pub source: cri_api::Error,
}

/// Treats the error that an object is absent as success: there is nothing to stop or to remove.
pub(super) fn ignore_not_found(result: cri_api::Result<()>) -> cri_api::Result<()> {
    match result {
        Err(error) if error.kind() == Kind::NotFound => Ok(()),
        result => result,
    }
}

/// Several failures as one: all of them by their names, with the cause of the first.
pub(super) fn first_of(failures: Vec<PodRuntimeError>) -> Result<(), PodRuntimeError> {
    let what = failures.iter().map(|failure| failure.what.as_str()).collect::<Vec<_>>().join(", ");
    failures.into_iter().next().map_or(Ok(()), |first| Err(PodRuntimeError { what, source: first.source }))
}
