//! The view for podman on request: the store makes it; here its words become those of the image service. Called on threads that
//! may block.

use cri_api::{Error, Kind, Result};
use engine_api::{HiddenImage, PodmanStoreReport, PodmanStoreRequest};
use store::{PodmanView, PodmanViewError, Store};

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
    let PodmanView { directory, images, hidden } = store.make_podman_view(&request.graph_roots).map_err(failed)?;
    let plain = |store::HiddenImage { id, names, why }| HiddenImage { id: id.to_string(), names, why: why.to_owned() };
    let hidden = hidden.into_iter().map(plain).collect();
    Ok(PodmanStoreReport { directory: Some(directory), images, hidden })
}
