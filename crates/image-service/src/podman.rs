//! The view for podman on request: the store makes it; here its errors become those of the image service. Called on threads that
//! may block.

use cri_api::engine::{PodmanStoreReport, PodmanStoreRequest};
use cri_api::{Error, Kind, Result};
use store::{PodmanViewError, Store};

use crate::error;

/// Makes or removes the view. Blocks.
pub(crate) fn podman_store(store: &Store, request: &PodmanStoreRequest) -> Result<PodmanStoreReport> {
    let failed = |error: PodmanViewError| match &error {
        PodmanViewError::Store(error) => error::from_store(store.root(), error),
        PodmanViewError::NotPrivileged => Error::from_source(Kind::PermissionDenied, &error),
        PodmanViewError::NotOurs { .. } | PodmanViewError::InUse { .. } => {
            Error::from_source(Kind::FailedPrecondition, &error)
        }
    };
    if request.remove {
        store.remove_podman_view().map_err(failed)?;
        return Ok(PodmanStoreReport::default());
    }
    store.make_podman_view(&request.graph_roots).map_err(failed)
}
