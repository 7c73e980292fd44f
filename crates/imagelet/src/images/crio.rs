//! Images in front of a CRI-O: pulled by our engine into the store of this process, which CRI-O reads as an additional image store. Called by
//! [`Images`](super::Images), for `serve`.

use std::sync::Arc;
use std::time::Duration;

use cri_api::engine::ImageEngine;
use cri_api::{ImageService, Kind, RuntimeService as _};
use cri_grpc::Endpoint;
use cri_grpc::client::{RemoteRuntimeService, connect_image_service};
use image_service::{CrioImages, PullEngine};
use tokio_util::sync::CancellationToken;

use super::opening::Opening;
use super::shared_store::SharedStore;
use crate::config::Config;
use crate::endpoint::client_options;
use crate::exit::{Code, Failure, Outcome, chain, code_of};

/// The name of CRI-O in its answer to Version.
const CRIO: &str = "cri-o";
/// Pause between two updates of the view.
const TEND_EVERY: Duration = Duration::from_secs(30);

/// Returns true if the images behind an endpoint are to be pulled into our own store, because a CRI-O is behind it.
pub(super) async fn is_behind(config: &Config, endpoint: &Endpoint, opening: &Opening<'_>) -> Outcome<bool> {
    if !opening.access.is_front() || config.pull_engine == PullEngine::Runtime {
        return Ok(false);
    }
    let is_privileged = tokio::task::spawn_blocking(store::is_privileged).await;
    if !is_privileged.map_err(|error| Failure::failed(format!("find out whether this process is root: {error}")))? {
        return Ok(false);
    }
    // Until there is an answer, the runtime may be any one.
    if let Err(error) = connect_image_service(endpoint, client_options(config)).await {
        return Err(Failure::new(code_of(error.kind()), chain(&error)));
    }
    match RemoteRuntimeService::of(endpoint, client_options(config)).version().await {
        Ok(version) => Ok(version.runtime_name == CRIO),
        // An image service without containers.
        Err(error) if error.kind() == Kind::Unimplemented => Ok(false),
        Err(error) => Err(Failure::new(code_of(error.kind()), format!("{endpoint}: {}", chain(&error)))),
    }
}

/// Connects to CRI-O, and enables the view of our store that it reads.
pub(super) async fn connect(
    config: &Config,
    endpoint: &Endpoint,
    store: &Arc<SharedStore>,
) -> Outcome<Arc<CrioImages>> {
    let runtime = connect_image_service(endpoint, client_options(config)).await;
    let runtime = runtime.map_err(|error| Failure::new(code_of(error.kind()), chain(&error)))?;
    let (own, engine) = (Arc::clone(store) as Arc<dyn ImageService>, Arc::clone(store) as Arc<dyn ImageEngine>);
    let has_policy = config.engine.signature_policy.is_some();
    let images = CrioImages::open(own, engine, Arc::new(runtime), has_policy).await.map_err(|error| {
        let code = if error.kind() == Kind::Unavailable { Code::Unreachable } else { Code::Failed };
        Failure::new(code, format!("show the images of {} to CRI-O: {}", config.root.display(), chain(&error)))
    })?;
    tracing::info!(
        "images for {endpoint} are pulled into {}: CRI-O finds them by this line below [storage.options] in \
         /etc/containers/storage.conf: {}",
        config.root.display(),
        images.storage_line()
    );
    Ok(Arc::new(images))
}

/// Keeps the view as it should be until `stop`.
pub(super) async fn tend(images: &CrioImages, stop: &CancellationToken) {
    let rounds = async {
        loop {
            tokio::time::sleep(TEND_EVERY).await;
            images.tend().await;
        }
    };
    stop.run_until_cancelled(rounds).await;
}
