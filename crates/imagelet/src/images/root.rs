//! [`Root`]: the embedded store, whoever holds it. One process holds a store; the first one that comes answers for the others on
//! the store's socket, and when it ends one of them goes on in its place: a call that it did not answer is made once more.
//! Commands see a store that is always there. Does nothing with images. Called by [`Images`](super::Images).

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent::admin::engine::StoreServer;
use agent::admin::remote_store::RemoteStore;
use cri_api::{Error, ImageService, Kind, Result};
use image_service::{Engine, EngineOptions, OpenError};
use lock::Mutex;
use store::OpenError as StoreOpenError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::access::Access;

/// Pauses between two looks at a root that another process holds and does not answer for.
const PAUSE: Duration = Duration::from_millis(50);
/// How long such a process may take to begin or to end before people learn for whom they wait.
const GRACE: Duration = Duration::from_millis(500);

/// The embedded store.
pub(crate) struct Root {
    options: EngineOptions,
    access: Access,
    stop: CancellationToken,
    /// Guards who has the store.
    holder: Mutex<Holder>,
    /// Held by who looks for another holder.
    looking: tokio::sync::Mutex<()>,
}

/// The process that has the store.
#[derive(Clone)]
pub(super) enum Holder {
    /// This one. Dropped in this order: nobody is to ask when the lock is free.
    Own { server: Option<Arc<StoreServer>>, engine: Engine },
    /// Another one.
    Other { person: Person, remote: RemoteStore },
}

/// A process that has the store, as its lock file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Person {
    pid: Option<u32>,
    command: Option<String>,
    /// Stays until it is asked to end.
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

/// Why there is no store to ask.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RootError {
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The process was asked to end while it waited.
    #[error("ended by a signal")]
    Stopped,
}

impl Root {
    /// Opens the store, or finds the process that has it. A process that serves images has it for itself: it waits for a command
    /// that holds the store, and fails where another agent does.
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

    /// Says which process brings images for this command.
    fn name_holder(&self) {
        if let Holder::Other { person, .. } = self.holder()
            && self.access.brings
        {
            let root = self.options.root.display();
            tracing::info!("{root} is held by {person}, which does the work for this command");
        }
    }

    /// The process that has the store now.
    pub(super) fn holder(&self) -> Holder {
        self.holder.lock().clone()
    }

    /// The engine, where this process has the store.
    pub(crate) fn own(&self) -> Option<Engine> {
        match self.holder() {
            Holder::Own { engine, .. } => Some(engine),
            Holder::Other { .. } => None,
        }
    }

    /// The agent that has the store, where it is another process.
    pub(crate) fn agent(&self) -> Option<Person> {
        match self.holder() {
            Holder::Other { person, .. } if person.is_agent => Some(person),
            _ => None,
        }
    }

    /// Where this process has the store, has others pulled for and answered by `service`.
    pub(crate) fn answer_with(&self, service: Arc<dyn ImageService>) {
        if let Holder::Own { server: Some(server), .. } = self.holder() {
            server.answer_with(service);
        }
    }

    /// Answers as `old` did, or not at all if `old` is gone: then somebody else has the store now, who is to be asked.
    pub(super) async fn heard<T>(&self, old: &Holder, answer: Result<T>) -> Option<Result<T>> {
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

    /// Waits until this process has the store itself: for what cannot be done twice.
    pub(super) async fn take(&self, old: &Holder) -> Result<()> {
        let taken = self.find_again(old, true).await;
        taken.map(drop).map_err(|error| Error::from_source(Kind::FailedPrecondition, &error))
    }

    /// Looks who has the store; answers whether that is another process than `old`.
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

    /// Ends what goes on in the background of a store of this process; others are not answered any more.
    pub(crate) async fn close(&self) {
        if let Holder::Own { server, engine } = self.holder() {
            if let Some(server) = &server {
                server.stop().await;
                // Whatever it answered with may hold this store open.
                server.answer_with(Arc::new(engine.clone()));
            }
            engine.shutdown().await;
        }
    }
}

/// The process that has the store: this one where nobody has it. Waits for one that neither answers nor lets go, and with `own`
/// for everybody but an agent.
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
            // Between two holders the lock file may still name the one before.
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

/// Answers other processes for the store of this one. Without that they wait for its end.
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

/// Returns true unless `path` is a pipe, a socket or a device, which cannot be read or written once more from its beginning. Blocks.
pub(super) fn can_be_repeated(path: &Path) -> bool {
    match fs::metadata(path) {
        Ok(found) => found.is_file() || found.is_dir(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}
