//! [`Root`]: the embedded store, held by this process or another one. One process holds a store; the first process answers for the others
//! on the store's socket. When it ends, one of the others takes over: a call that it did not answer is retried. Commands see a store that
//! is always available. Does not process images itself. Called by [`Images`](super::Images).

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent::admin::engine::StoreServer;
use agent::admin::remote_store::RemoteStore;
use base::lock::Mutex;
use cri_api::{Error, ImageService, Kind, Result};
use image_service::{Engine, EngineOptions, OpenError};
use store::OpenError as StoreOpenError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::access::Access;

/// Pause between two checks of a root whose owner does not answer.
const PAUSE: Duration = Duration::from_millis(50);
/// How long such a process may take to start or to end before the log names it.
const GRACE: Duration = Duration::from_millis(500);

/// The embedded store.
pub(crate) struct Root {
    options: EngineOptions,
    access: Access,
    stop: CancellationToken,
    /// Guards the current owner of the store.
    holder: Mutex<Holder>,
    /// Serialises the search for another owner.
    looking: tokio::sync::Mutex<()>,
}

/// The owner of the store.
#[derive(Clone)]
pub(super) enum Holder {
    /// This process. The server is dropped before the engine, so that no client asks after the lock is released.
    Own { server: Option<Arc<StoreServer>>, engine: Engine },
    /// Another process.
    Other { person: Person, remote: RemoteStore },
}

/// The owner of the store, as its lock file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Person {
    pid: Option<u32>,
    command: Option<String>,
    /// True if the process runs until it is asked to end.
    pub(super) is_agent: bool,
}

impl fmt::Display for Person {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pid, &self.command) {
            (Some(pid), Some(command)) => write!(f, "process {pid} ({command})"),
            (Some(pid), None) => write!(f, "process {pid}"),
            (None, _) => f.write_str("another process"),
        }
    }
}

impl Holder {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Own { .. }, Self::Own { .. }) => true,
            (Self::Other { person: one, .. }, Self::Other { person: two, .. }) => one == two,
            _ => false,
        }
    }
}

/// Why the store is unavailable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RootError {
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The process was asked to end while it waited.
    #[error("ended by a signal")]
    Stopped,
}

impl Root {
    /// Opens the store, or finds the process that holds it. A process that serves images needs the store for itself: it waits for a command
    /// that holds the store, and fails if another agent does.
    pub(crate) async fn open(
        options: EngineOptions,
        access: &Access,
        stop: &CancellationToken,
    ) -> std::result::Result<Self, RootError> {
        let own = options.store.agent_socket.is_some();
        let holder = find(&options, access, stop, own).await?;
        let root = Self {
            options,
            access: access.clone(),
            stop: stop.clone(),
            holder: Mutex::new(holder),
            looking: tokio::sync::Mutex::new(()),
        };
        root.name_holder();
        Ok(root)
    }

    /// Logs which process pulls images for this command.
    fn name_holder(&self) {
        if let Holder::Other { person, .. } = self.holder()
            && self.access.brings
        {
            let root = self.options.root.display();
            tracing::info!("{root} is held by {person}, which does the work for this command");
        }
    }

    /// Returns the current owner of the store.
    pub(super) fn holder(&self) -> Holder {
        self.holder.lock().clone()
    }

    /// Returns the engine, if this process holds the store.
    pub(crate) fn own(&self) -> Option<Engine> {
        match self.holder() {
            Holder::Own { engine, .. } => Some(engine),
            Holder::Other { .. } => None,
        }
    }

    /// Returns the agent that holds the store, if it is another process.
    pub(crate) fn agent(&self) -> Option<Person> {
        match self.holder() {
            Holder::Other { person, .. } if person.is_agent => Some(person),
            _ => None,
        }
    }

    /// If this process holds the store, pulls and answers for other processes with `service`.
    pub(crate) fn answer_with(&self, service: Arc<dyn ImageService>) {
        if let Holder::Own { server: Some(server), .. } = self.holder() {
            server.answer_with(service);
        }
    }

    /// Returns `answer` as it is, or `None` if `old` no longer holds the store: the call must then be retried with the new owner.
    pub(super) async fn answer_or_retry<T>(&self, old: &Holder, answer: Result<T>) -> Option<Result<T>> {
        match (&answer, old) {
            (Err(error), Holder::Other { .. }) if error.kind() == Kind::Unavailable => {}
            _ => return Some(answer),
        }
        match self.find_again(old, false).await {
            Ok(true) => None,
            Ok(false) => Some(answer),
            Err(error) => Some(Err(Error::from_source(Kind::FailedPrecondition, &error))),
        }
    }

    /// Waits until this process holds the store itself, for calls that cannot be retried.
    pub(super) async fn take(&self, old: &Holder) -> Result<()> {
        let taken = self.find_again(old, true).await;
        taken.map(drop).map_err(|error| Error::from_source(Kind::FailedPrecondition, &error))
    }

    /// Finds the owner of the store, and returns true if it is another process than `old`.
    async fn find_again(&self, old: &Holder, own: bool) -> std::result::Result<bool, RootError> {
        let _looking = self.looking.lock().await;
        let now = self.holder();
        if !now.is(old) && (!own || matches!(now, Holder::Own { .. })) {
            return Ok(true);
        }
        let found = find(&self.options, &self.access, &self.stop, own).await?;
        let moved = !found.is(old);
        if moved {
            *self.holder.lock() = found;
            self.name_holder();
        }
        Ok(moved)
    }

    /// Ends background work of a store of this process; other processes are not answered any more.
    pub(crate) async fn close(&self) {
        if let Holder::Own { server, engine } = self.holder() {
            if let Some(server) = &server {
                server.stop().await;
                // The service that it answered with may keep this store open.
                server.answer_with(Arc::new(engine.clone()));
            }
            engine.shutdown().await;
        }
    }
}

/// Returns the owner of the store, which is this process if the lock is free. Waits for an owner that neither answers nor releases the
/// lock, and with `own` for every owner except an agent.
async fn find(
    options: &EngineOptions,
    access: &Access,
    stop: &CancellationToken,
    own: bool,
) -> std::result::Result<Holder, RootError> {
    let begin = Instant::now();
    let mut told = false;
    loop {
        let error = match Engine::open(options.clone()).await {
            Ok(engine) => return Ok(Holder::Own { server: answer_others(&options.root, &engine).await, engine }),
            Err(OpenError::Store(error)) => error,
            Err(error) => return Err(error.into()),
        };
        let StoreOpenError::Held { root, pid, command, settings, socket } = &error else {
            return Err(OpenError::Store(error).into());
        };
        let person = Person { pid: *pid, command: command.clone(), is_agent: socket.is_some() };
        if person.is_agent && options.store.agent_socket.is_some() {
            return Err(OpenError::Store(error).into());
        }
        let pulls_alike = person.is_agent || *settings == options.store.settings;
        if !own && (pulls_alike || !access.brings) {
            let remote = RemoteStore::of(&options.root);
            // While the owner changes, the lock file may still name the previous one.
            if remote.holder().await.is_some_and(|answers| person.pid == Some(answers)) {
                return Ok(Holder::Other { person, remote });
            }
        }
        if !told && begin.elapsed() >= GRACE {
            told = true;
            let settings = if pulls_alike || own { "" } else { " and pulls by other settings" };
            tracing::info!("waiting for {person}, which holds {}{settings}", root.display());
        }
        tokio::select! {
            () = stop.cancelled() => return Err(RootError::Stopped),
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

/// Answers other processes for the store of this one. If that fails, they wait until this process ends.
async fn answer_others(root: &Path, engine: &Engine) -> Option<Arc<StoreServer>> {
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

/// Returns false if `path` is a pipe, a socket or a device, which cannot be read or written again from its beginning. Blocks.
pub(super) fn can_be_repeated(path: &Path) -> bool {
    match fs::metadata(path) {
        Ok(found) => found.is_file() || found.is_dir(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}
