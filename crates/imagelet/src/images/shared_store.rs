//! [`SharedStore`]: the embedded store, owned by this process or another one. One process owns a store, and serves it to other
//! processes on the store's socket. When the owner ends, another process takes over, and calls without an answer are retried, so that
//! the store is always available to commands. Does not process images itself. Called by [`Images`](super::Images).

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent::admin::remote_store::RemoteStore;
use agent::admin::store_server::StoreServer;
use base::lock::Mutex;
use cri_api::{Error, ImageService, Kind, Result};
use image_service::{Engine, EngineOptions, OpenError};
use store::OpenError as StoreOpenError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::access::Access;

/// Pause between two checks of a store whose owner does not answer.
const PAUSE: Duration = Duration::from_millis(50);
/// Time that an owner may take to start or to end before the log names it.
const GRACE: Duration = Duration::from_millis(500);

/// The embedded store of one root directory.
pub(crate) struct SharedStore {
    options: EngineOptions,
    access: Access,
    stop: CancellationToken,
    /// Guards the current owner of the store.
    owner: Mutex<StoreOwner>,
    /// Serialises the search for another owner.
    search: tokio::sync::Mutex<()>,
}

/// The owner of the store.
#[derive(Clone)]
pub(super) enum StoreOwner {
    /// This process. The server is dropped before the engine, so that no client asks after the lock is released.
    Own { server: Option<Arc<StoreServer>>, engine: Engine },
    /// Another process.
    Other { process: OwnerProcess, remote: RemoteStore },
}

/// The process that owns the store, as described by the store's lock file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnerProcess {
    pid: Option<u32>,
    command: Option<String>,
    /// True if the process runs until it is asked to end.
    pub(super) is_agent: bool,
}

impl fmt::Display for OwnerProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pid, &self.command) {
            (Some(pid), Some(command)) => write!(f, "process {pid} ({command})"),
            (Some(pid), None) => write!(f, "process {pid}"),
            (None, _) => f.write_str("another process"),
        }
    }
}

impl StoreOwner {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Own { .. }, Self::Own { .. }) => true,
            (Self::Other { process: one, .. }, Self::Other { process: two, .. }) => one == two,
            _ => false,
        }
    }
}

/// Reason for which the store is unavailable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SharedStoreError {
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The process was asked to end while it waited.
    #[error("ended by a signal")]
    Stopped,
    /// The process that owns the store does not have the API of this version.
    #[error(transparent)]
    OtherVersion(Error),
}

impl SharedStore {
    /// Opens the store, or finds the process that owns it. A process that serves images must own the store: it waits for a command that
    /// owns the store, and fails if another agent does.
    pub(crate) async fn open(
        options: EngineOptions,
        access: &Access,
        stop: &CancellationToken,
    ) -> std::result::Result<Self, SharedStoreError> {
        let own = options.store.agent_socket.is_some();
        let owner = find_owner(&options, access, stop, own).await?;
        let store = Self {
            options,
            access: access.clone(),
            stop: stop.clone(),
            owner: Mutex::new(owner),
            search: tokio::sync::Mutex::new(()),
        };
        store.log_owner();
        Ok(store)
    }

    /// Logs which process pulls images for this command.
    fn log_owner(&self) {
        if let StoreOwner::Other { process, .. } = self.owner()
            && self.access.pulls
        {
            let root = self.options.root.display();
            tracing::info!("{root} is held by {process}, which does the work for this command");
        }
    }

    /// Returns the current owner of the store.
    pub(super) fn owner(&self) -> StoreOwner {
        self.owner.lock().clone()
    }

    /// Returns the engine, if this process owns the store.
    pub(crate) fn own(&self) -> Option<Engine> {
        match self.owner() {
            StoreOwner::Own { engine, .. } => Some(engine),
            StoreOwner::Other { .. } => None,
        }
    }

    /// Returns the agent that owns the store, if that is another process.
    pub(crate) fn agent(&self) -> Option<OwnerProcess> {
        match self.owner() {
            StoreOwner::Other { process, .. } if process.is_agent => Some(process),
            _ => None,
        }
    }

    /// Serves other processes with `service` from now on, if this process owns the store.
    pub(crate) fn answer_with(&self, service: Arc<dyn ImageService>) {
        if let StoreOwner::Own { server: Some(server), .. } = self.owner() {
            server.answer_with(service);
        }
    }

    /// Returns `answer` as it is, or `None` if `old` no longer owns the store, so that the call must be retried with the new owner.
    pub(super) async fn answer_or_retry<T>(&self, old: &StoreOwner, answer: Result<T>) -> Option<Result<T>> {
        match (&answer, old) {
            (Err(error), StoreOwner::Other { .. }) if error.kind() == Kind::Unavailable => {}
            _ => return Some(answer),
        }
        match self.find_owner_again(old, false).await {
            Ok(true) => None,
            Ok(false) => Some(answer),
            Err(error) => Some(Err(Error::from_source(Kind::FailedPrecondition, &error))),
        }
    }

    /// Waits until this process owns the store, for calls that cannot be retried.
    pub(super) async fn take(&self, old: &StoreOwner) -> Result<()> {
        let taken = self.find_owner_again(old, true).await;
        taken.map(drop).map_err(|error| Error::from_source(Kind::FailedPrecondition, &error))
    }

    /// Finds the owner of the store, and returns true if another process than `old` owns it.
    async fn find_owner_again(&self, old: &StoreOwner, own: bool) -> std::result::Result<bool, SharedStoreError> {
        let _search = self.search.lock().await;
        let now = self.owner();
        if !now.is(old) && (!own || matches!(now, StoreOwner::Own { .. })) {
            return Ok(true);
        }
        let found = find_owner(&self.options, &self.access, &self.stop, own).await?;
        let moved = !found.is(old);
        if moved {
            *self.owner.lock() = found;
            self.log_owner();
        }
        Ok(moved)
    }

    /// Ends background work and the service of other processes, if this process owns the store.
    pub(crate) async fn close(&self) {
        if let StoreOwner::Own { server, engine } = self.owner() {
            if let Some(server) = &server {
                server.stop().await;
                // The service that was set may keep this store open.
                server.answer_with(Arc::new(engine.clone()));
            }
            engine.shutdown().await;
        }
    }
}

/// Returns the owner of the store, which is this process if the lock is free. Waits for an owner that neither answers nor releases the
/// lock, and with `own` for every owner except an agent.
async fn find_owner(
    options: &EngineOptions,
    access: &Access,
    stop: &CancellationToken,
    own: bool,
) -> std::result::Result<StoreOwner, SharedStoreError> {
    let begin = Instant::now();
    let mut logged = false;
    loop {
        let error = match Engine::open(options.clone()).await {
            Ok(engine) => return Ok(StoreOwner::Own { server: serve_others(&options.root, &engine).await, engine }),
            Err(OpenError::Store(error)) => error,
            Err(error) => return Err(error.into()),
        };
        let StoreOpenError::Held { root, pid, command, settings, socket } = &error else {
            return Err(OpenError::Store(error).into());
        };
        let process = OwnerProcess { pid: *pid, command: command.clone(), is_agent: socket.is_some() };
        if process.is_agent && options.store.agent_socket.is_some() {
            return Err(OpenError::Store(error).into());
        }
        let same_settings = process.is_agent || *settings == options.store.settings;
        if !own && (same_settings || !access.pulls) {
            let remote = RemoteStore::of(&options.root);
            match remote.owner().await {
                // While the owner changes, the lock file may still name the previous one.
                Ok(owner) if process.pid == Some(owner.pid) => return Ok(StoreOwner::Other { process, remote }),
                Err(error) if error.kind() == Kind::Unimplemented => {
                    return Err(SharedStoreError::OtherVersion(error));
                }
                _ => {}
            }
        }
        if !logged && begin.elapsed() >= GRACE {
            logged = true;
            let settings = if same_settings || own { "" } else { " and pulls by other settings" };
            tracing::info!("waiting for {process}, which holds {}{settings}", root.display());
        }
        tokio::select! {
            () = stop.cancelled() => return Err(SharedStoreError::Stopped),
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

/// Serves the store to other processes. If that fails, they wait until this process ends.
async fn serve_others(root: &Path, engine: &Engine) -> Option<Arc<StoreServer>> {
    let (root, engine) = (root.to_owned(), Arc::new(engine.clone()));
    let shown = root.display().to_string();
    let started =
        tokio::task::spawn_blocking(move || StoreServer::start(&root, Arc::clone(&engine) as _, engine)).await;
    match started {
        Ok(Ok(server)) => Some(Arc::new(server)),
        Ok(Err(problem)) => {
            tracing::warn!("other commands wait for this one, which cannot answer them in {shown}: {problem}");
            None
        }
        Err(_) => None,
    }
}

/// Returns false if `path` is a pipe, a socket or a device, which cannot be read or written again from the start. Blocks.
pub(super) fn can_be_repeated(path: &Path) -> bool {
    match fs::metadata(path) {
        Ok(found) => found.is_file() || found.is_dir(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}
