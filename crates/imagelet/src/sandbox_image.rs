//! Finds the image that a runtime creates pod sandboxes from: the setting `imageGC.sandboxImage`, the runtime's status, or, for
//! containerd 2, whose status does not have it, containerd's configuration file. Called by `run`, by collection and by `doctor`.

use std::sync::Arc;

use base::lock::Mutex;
use cri_api::RuntimeService;
use cri_grpc::Endpoint;
use image_manager::SandboxImageLookup;

use crate::exit::chain;

/// Returns the sandbox image that a runtime uses; `Ok(None)`: neither the runtime nor its configuration file names it.
///
/// # Errors
/// A text for users: the runtime does not answer, or its configuration cannot be read.
pub(crate) async fn of_runtime(runtime: &dyn RuntimeService, endpoint: &Endpoint) -> Result<Option<String>, String> {
    let status = runtime.status(true).await.map_err(|error| format!("{endpoint}: {error}"))?;
    match status.sandbox_image() {
        Some(image) => Ok(Some(image)),
        None => containerd::configured_sandbox_image(endpoint.path()).await.map_err(|error| chain(&error)),
    }
}

/// Returns a lookup that prefers the image of the settings, and remembers the runtime's last answer for the time when it has none.
pub(crate) fn lookup(
    configured: impl Fn() -> String + Send + Sync + 'static,
    runtime: Arc<dyn RuntimeService>,
    endpoint: Endpoint,
) -> SandboxImageLookup {
    /// Guards the last answer.
    type LastAnswer = Arc<Mutex<Option<String>>>;
    let last = LastAnswer::default();
    Arc::new(move || {
        let configured = configured();
        let (runtime, endpoint, last) = (Arc::clone(&runtime), endpoint.clone(), Arc::clone(&last));
        Box::pin(async move {
            if !configured.is_empty() {
                return Some(configured);
            }
            match of_runtime(&*runtime, &endpoint).await {
                Ok(image) => last.lock().clone_from(&image),
                Err(error) => tracing::debug!(error, "sandbox image is not known"),
            }
            last.lock().clone()
        })
    })
}
