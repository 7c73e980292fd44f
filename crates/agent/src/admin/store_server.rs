//! The socket of a store. The process that owns a root answers other processes of its user on it, so that the root stays reachable for
//! them, with the routes of the API for images and the store. A call ends when its caller disconnects, and so does a lease. When the
//! process ends, running calls are answered `Unavailable` or break off, and the caller has to ask the next owner. Decides nothing. Made
//! by the binary; [`RemoteStore`](super::remote_store::RemoteStore) is the client.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cri_api::ImageService;
use cri_api::engine::ImageEngine;
use tokio_util::task::TaskTracker;

use super::routes;
use super::state::Admin;
use crate::api::socket_path::{reachable, store_socket};

/// Answers for the store of this process. Dropping it ends that.
pub struct StoreServer {
    state: Arc<Admin>,
    tasks: TaskTracker,
    path: PathBuf,
}

impl StoreServer {
    /// Answers on the socket of `root`, which this process owns: an existing socket there is left over from a process that has ended.
    ///
    /// # Errors
    /// The socket could not be made.
    pub fn start(root: &Path, service: Arc<dyn ImageService>, engine: Arc<dyn ImageEngine>) -> io::Result<Self> {
        let path = store_socket(root);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // The directory is its owner's alone.
        let (short, _directory) = reachable(&path)?;
        let listener = tokio::net::UnixListener::bind(&short)?;
        fs::set_permissions(&short, fs::Permissions::from_mode(0o600))?;
        let state = Arc::new(Admin::of_store(service, engine));
        let (routes, stop, tasks) = (routes::of_store(Arc::clone(&state)), state.stop.clone(), TaskTracker::new());
        tasks.spawn(async move {
            let serve = axum::serve(listener, routes).with_graceful_shutdown(stop.clone().cancelled_owned());
            tokio::select! {
                served = serve => if let Err(error) = served {
                    tracing::warn!(%error, "the store's socket answers no more");
                },
                () = stop.cancelled() => {}
            }
        });
        tasks.close();
        Ok(Self { state, tasks, path })
    }

    /// Makes `service`, which does more than the store itself, answer the calls of CRI from now on.
    pub fn answer_with(&self, service: Arc<dyn ImageService>) {
        *self.state.images.lock() = Some(service);
    }

    /// Cancels the calls that run, and returns when all of them have ended.
    pub async fn stop(&self) {
        self.state.stop.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        self.state.stop.cancel();
        // Its path is left to the next process otherwise, which removes it.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
#[path = "store_server_tests.rs"]
mod tests;
