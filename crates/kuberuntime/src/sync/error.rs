//! [`PodRuntimeError`]: a call of the runtime that failed, with the operation that it was part of.

use cri_api::Kind;

/// Why a pod could not be observed, ended or removed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}")]
pub struct PodRuntimeError {
    /// The operation.
    pub what: String,
    /// Why it failed.
    #[source]
    pub source: cri_api::Error,
}

/// Takes the error that something is gone for success: then there is nothing to stop or to remove.
pub(super) fn gone_is_done(result: cri_api::Result<()>) -> cri_api::Result<()> {
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
