//! The database's handle, which survives a failed write. Holds no rule about images or layers; [`crate::records::tables`] knows
//! what is in it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use base::lock::RwLock;
use redb::{Database, ReadTransaction, ReadableDatabase, WriteTransaction};

use crate::disk::identity::StoreIdentity;
use crate::disk::reserve::Reserve;
use crate::disk::young::Youth;
use crate::error::StoreError;
use crate::records::backend::ReservedFile;
use crate::records::tables;

pub(crate) use crate::records::tables::{Records, RecordsMut};

/// The records are small and few: what redb keeps in memory by default would be more than the agent itself.
const CACHE_BYTES: usize = 8 * 1024 * 1024;

fn io_error(error: std::io::Error) -> StoreError {
    StoreError::Database(Box::new(redb::Error::Io(error)))
}

/// The open database. After a failed read or write redb's handle refuses everything; it is then opened again at the
/// next use, which finds the last state that reached the disk.
#[derive(Debug)]
pub(crate) struct Db {
    path: PathBuf,
    reserve: Arc<Reserve>,
    youth: Arc<Youth>,
    /// A sync has failed since all of the file was written.
    doubtful: Arc<AtomicBool>,
    /// Called after every change.
    follower: OnceLock<Follower>,
    /// The files that must be where they were, for a change to be made. Set when the store is open.
    identity: OnceLock<StoreIdentity>,
    /// Guards the handle: shared by all users, exclusive while it is replaced.
    handle: RwLock<Option<Handle>>,
}

/// Work that follows every change.
struct Follower(Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Follower")
    }
}

#[derive(Debug)]
struct Handle {
    /// `Some` until the handle is dropped.
    db: Option<Database>,
    file: ReservedFile,
}

/// redb trusts its pages, and panics if they were damaged on the disk. That becomes an ordinary error.
fn guarded<T, E: From<StoreError>>(act: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<&str>().copied();
        let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Err(StoreError::Corrupt(format!("its file cannot be read: {}", said.unwrap_or("for an unknown reason"))).into())
    })
}

impl Handle {
    fn open(
        path: &Path,
        reserve: &Arc<Reserve>,
        youth: &Arc<Youth>,
        doubtful: &Arc<AtomicBool>,
    ) -> Result<Self, StoreError> {
        let file = ReservedFile::open(path, Arc::clone(reserve), Arc::clone(youth), Arc::clone(doubtful));
        let file = file.map_err(io_error)?;
        let open = || Ok(Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(file.clone())?);
        Ok(Self { db: Some(guarded::<_, StoreError>(open)?), file })
    }

    fn db(&self) -> &Database {
        self.db.as_ref().expect("it is there until the handle goes")
    }

    /// Does something with the database. A handle that it panicked with is not used again.
    fn act<T, E: From<StoreError>>(&self, act: impl FnOnce(&Self) -> Result<T, E>) -> Result<T, E> {
        let mut ended = false;
        let done = guarded(|| {
            let done = act(self);
            ended = true;
            done
        });
        if !ended {
            self.file.give_up();
        }
        done
    }

    fn is_usable(&self) -> bool {
        self.file.is_usable()
    }

    /// A transaction that leaves a file which need not be closed.
    fn begin_write(&self) -> Result<WriteTransaction, StoreError> {
        self.file.begin().map_err(io_error)?;
        let mut transaction = self.db().begin_write()?;
        transaction.set_quick_repair(true);
        Ok(transaction)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.file.end();
        let db = self.db.take();
        // The close of a damaged file may panic, which can be ignored: nothing is written any more.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(db)));
    }
}

impl Db {
    /// Opens or creates it, with all tables.
    pub(crate) fn open(path: &Path, reserve: Arc<Reserve>, youth: Arc<Youth>) -> Result<Self, StoreError> {
        let doubtful = Arc::default();
        let handle = Handle::open(path, &reserve, &youth, &doubtful)?;
        // An existing store is opened without a write: there may be no space for one.
        handle.act(|handle| {
            if !tables::are_there(&handle.db().begin_read()?)? {
                let transaction = handle.begin_write()?;
                tables::make(&transaction)?;
                transaction.commit()?;
            }
            Ok::<_, StoreError>(())
        })?;
        let handle = RwLock::new(Some(handle));
        Ok(Self {
            path: path.to_owned(),
            reserve,
            youth,
            doubtful,
            follower: OnceLock::new(),
            identity: OnceLock::new(),
            handle,
        })
    }

    /// From now on refuses every change unless the store has this identity.
    pub(crate) fn bind(&self, identity: StoreIdentity) {
        // A store is opened once.
        let _ = self.identity.set(identity);
    }

    /// Refuses a store that is not where it was opened.
    pub(crate) fn check_identity(&self) -> Result<(), StoreError> {
        let Some(identity) = self.identity.get() else { return Ok(()) };
        identity.displaced().map_err(io_error)?.map_or(Ok(()), |what| Err(StoreError::Displaced(what)))
    }

    /// From now on `follower` is called after every change, before the thread that made it continues. It may read.
    pub(crate) fn follow_with(&self, follower: impl Fn() + Send + Sync + 'static) {
        // A store is opened once.
        let _ = self.follower.set(Follower(Box::new(follower)));
    }

    pub(crate) fn reserve(&self) -> &Reserve {
        &self.reserve
    }

    pub(crate) fn youth(&self) -> &Youth {
        &self.youth
    }

    /// Runs `act` on a consistent snapshot of the records.
    pub(crate) fn read<T, E: From<StoreError>>(
        &self,
        act: impl FnOnce(&ReadTransaction) -> Result<T, E>,
    ) -> Result<T, E> {
        self.with_handle(|handle| {
            let transaction = handle.db().begin_read().map_err(StoreError::from)?;
            act(&transaction)
        })
    }

    /// A change of the records: durable when it returns (unless the store is young, and of relaxed durability), or
    /// nothing when it fails; but for [`StoreError::Unsure`], which says that it may be either.
    pub(crate) fn write<T, E: From<StoreError>>(
        &self,
        act: impl FnOnce(&WriteTransaction) -> Result<T, E>,
    ) -> Result<T, E> {
        let value = self.change(act)?;
        if let Some(follower) = self.follower.get() {
            follower.0();
        }
        Ok(value)
    }

    fn change<T, E: From<StoreError>>(&self, act: impl FnOnce(&WriteTransaction) -> Result<T, E>) -> Result<T, E> {
        self.check_identity()?;
        self.youth.before_write().map_err(io_error)?;
        self.give_up_read_only();
        let (value, stamp, failed) = self.with_handle(|handle| {
            let transaction = handle.begin_write()?;
            let value = act(&transaction)?;
            let stamp = transaction.stamp()?.wrapping_add(1);
            transaction.put_stamp(stamp)?;
            Ok::<_, E>((value, stamp, transaction.commit().err()))
        })?;
        let Some(error) = failed else { return Ok(value) };
        // The operation that failed last can have been the sync, with everything in its place.
        let error = redb::Error::from(error);
        let found = self.read(|records| records.stamp());
        let made = found.as_ref().is_ok_and(|found| *found == stamp);
        if made && self.with_handle(|handle| handle.file.heal().map_err(io_error)).is_ok() {
            tracing::warn!(%error, "a change of the records succeeded at the second attempt");
            return Ok(value);
        }
        let is_certain = found.is_ok() && !made;
        let error = Box::new(error);
        Err(if is_certain { StoreError::Database(error) } else { StoreError::Unsure(error) }.into())
    }

    /// Gives up a read-only handle, so that the next write opens the file again: the file system may have become writable.
    fn give_up_read_only(&self) {
        let guard = self.handle.read();
        if let Some(handle) = guard.as_ref().filter(|handle| handle.file.is_read_only()) {
            handle.file.give_up();
        }
    }

    /// Runs `act` on a usable handle.
    fn with_handle<T, E: From<StoreError>>(&self, act: impl FnOnce(&Handle) -> Result<T, E>) -> Result<T, E> {
        loop {
            let guard = self.handle.read();
            if let Some(handle) = guard.as_ref().filter(|handle| handle.is_usable()) {
                return handle.act(act);
            }
            drop(guard);
            let mut guard = self.handle.write();
            if !guard.as_ref().is_some_and(Handle::is_usable) {
                // If the file is missing, the open would create a new one.
                self.check_identity()?;
                tracing::warn!(path = %self.path.display(), "the database failed before, and is opened again");
                // The old handle closes its file before the new one opens it.
                *guard = None;
                *guard = Some(Handle::open(&self.path, &self.reserve, &self.youth, &self.doubtful)?);
            }
        }
    }
}

#[cfg(test)]
#[path = "db_tests.rs"]
mod tests;
