//! [`Pulled`]: the pulled records, on disk and in memory. It does not decide access. [`PullRecords`] calls it.
//!
//! [`PullRecords`]: super::PullRecords

use base::lock::{Mutex, MutexGuard};
use std::collections::{BTreeSet, HashSet};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use oci::Reference;

use super::RecordsError;
use super::cache::{Cache, CacheState};
use super::files::{Content, Directory, FileStamp, Now, Use, stamp_of};
use super::format::{RECORD, Version, decode_record, encode_record, file_name, full_seconds};
use super::merge::{first, merge};
use super::record::{PulledRecord, RecordedCredentials};
use crate::WallClock;

/// How often a record is merged again that another process changed in the meantime.
const TRIES: usize = 32;
/// Room for a record on the stack: nearly all are smaller.
const USUAL_SIZE: usize = 2048;

/// A record in memory.
#[derive(Debug)]
pub(super) struct CachedRecord {
    pub(super) record: PulledRecord,
    repositories: OnceLock<Vec<Option<String>>>,
}

impl CachedRecord {
    pub(super) fn new(record: PulledRecord) -> Self {
        Self { record, repositories: OnceLock::new() }
    }

    /// Every name of the record with what is recorded under it, and the repository that it means.
    pub(super) fn names(&self) -> impl Iterator<Item = (&str, &RecordedCredentials, Option<&str>)> {
        let repositories = self.repositories.get_or_init(|| {
            let repository = |name: &String| Reference::parse(name).ok().map(|name| name.repository());
            self.record.mapping.keys().map(repository).collect()
        });
        let names = self.record.mapping.iter().zip(repositories);
        names.map(|((name, recorded), repository)| (name.as_str(), recorded, repository.as_deref()))
    }
}

/// Result of a look-up that does not wait.
#[derive(Debug)]
pub(super) enum Lookup {
    Found(Arc<CachedRecord>),
    Absent,
    /// The answer is not in memory: a caller that may block has to read the file.
    Unknown,
}

/// When records are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoadPhase {
    /// When the directory is opened: records of the old version are rewritten, and as many as fit are cached.
    First,
    /// The same, after records of the old version were rewritten.
    Migrated,
    /// Once more, if all of them fit.
    Again,
}

/// Content of a record's file, with the stamp of the file.
type ReadRecord = Result<Option<(PulledRecord, Version, FileStamp)>, RecordsError>;

pub(super) struct Pulled {
    directory: Directory,
    /// Guards what is known of the directory; held for look-ups and changes of the map alone.
    cache: Mutex<Cache<Arc<CachedRecord>>>,
    wall_clock: WallClock,
}

impl Pulled {
    /// Opens the directory, migrates old files, and reads what memory has room for.
    pub(super) fn open(path: PathBuf, used: Use, capacity: usize, wall_clock: WallClock) -> Result<Self, RecordsError> {
        let directory = Directory::open_for(path, used)?;
        let pulled = Self { directory, cache: Mutex::new(Cache::new(capacity)), wall_clock };
        pulled.load(LoadPhase::First)?;
        Ok(pulled)
    }

    fn cache(&self) -> MutexGuard<'_, Cache<Arc<CachedRecord>>> {
        // Nothing that panics is called with it held, and an entry is put in whole.
        self.cache.lock()
    }

    /// How full the memory is, in percent.
    pub(super) fn usage(&self) -> i64 {
        let cache = self.cache();
        i64::try_from(cache.len() * 100 / cache.capacity()).unwrap_or(100)
    }

    /// The record of an image, if memory knows of one; where it does not, that says nothing.
    pub(super) fn lookup_in_memory(&self, image_ref: &str) -> Result<Option<Arc<CachedRecord>>, RecordsError> {
        if !self.cache().has(image_ref) {
            // No stamp is taken for that.
            return Ok(None);
        }
        let stamp = self.directory.stamp()?;
        let mut cache = self.cache();
        let generation = cache.generation(stamp);
        match cache.get(image_ref, generation) {
            CacheState::Fresh(held) => Ok(Some(held)),
            CacheState::Stale(..) | CacheState::Absent | CacheState::Unknown => Ok(None),
        }
    }

    /// Returns the record of an image, if that is possible without waiting for a disk.
    pub(super) fn lookup(&self, image_ref: &str) -> Result<Lookup, RecordsError> {
        let stamp = self.directory.stamp()?;
        let (generation, stale) = {
            let mut cache = self.cache();
            let generation = cache.generation(stamp);
            match cache.get(image_ref, generation) {
                CacheState::Fresh(held) => return Ok(Lookup::Found(held)),
                CacheState::Absent => return Ok(Lookup::Absent),
                CacheState::Stale(held, file) => (generation, Some((held, file))),
                CacheState::Unknown => (generation, None),
            }
        };
        let mut buffer = [0; USUAL_SIZE];
        let seen = stale.as_ref().map(|(_, file)| file);
        match (self.directory.read_now(&file_name(image_ref), seen, &mut buffer), stale) {
            (Now::Unchanged, Some((held, _))) => {
                self.cache().renew(image_ref, generation);
                Ok(Lookup::Found(held))
            }
            (Now::Is(size, stamp), _) => self.take(image_ref, &buffer[..size], stamp, generation),
            (Now::Long(bytes, stamp), _) => self.take(image_ref, &bytes, stamp, generation),
            (Now::Absent, stale) => {
                if stale.is_some() {
                    self.cache().forget(image_ref);
                }
                Ok(Lookup::Absent)
            }
            (Now::Unknown | Now::Unchanged, _) => Ok(Lookup::Unknown),
        }
    }

    fn take(&self, image_ref: &str, bytes: &[u8], stamp: FileStamp, generation: u64) -> Result<Lookup, RecordsError> {
        Ok(self.admit(image_ref, bytes, stamp, generation)?.map_or(Lookup::Absent, Lookup::Found))
    }

    /// The entry of an image in memory.
    #[cfg(test)]
    pub(super) fn known(&self, image_ref: &str) -> Result<CacheState<Arc<CachedRecord>>, RecordsError> {
        let stamp = self.directory.stamp()?;
        let mut cache = self.cache();
        let generation = cache.generation(stamp);
        Ok(cache.get(image_ref, generation))
    }

    /// The record of an image. Blocks.
    pub(super) fn read(&self, image_ref: &str) -> Result<Option<Arc<CachedRecord>>, RecordsError> {
        let stamp = self.directory.stamp()?;
        let generation = self.cache().generation(stamp);
        match self.directory.read(&file_name(image_ref)) {
            Ok(Some(content)) => self.admit(image_ref, &content.bytes, content.stamp, generation),
            Ok(None) => {
                self.cache().forget(image_ref);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Takes what a file says into memory. A record of another image counts as none.
    fn admit(
        &self,
        image_ref: &str,
        bytes: &[u8],
        stamp: FileStamp,
        generation: u64,
    ) -> Result<Option<Arc<CachedRecord>>, RecordsError> {
        let record = match decode_record(bytes) {
            Ok((record, _)) => record,
            Err(what) => {
                self.cache().forget(image_ref);
                return Err(self.unreadable(&file_name(image_ref), what));
            }
        };
        if record.image_ref != image_ref {
            self.cache().forget(image_ref);
            return Ok(None);
        }
        let held = Arc::new(CachedRecord::new(record));
        self.cache().put(image_ref, Arc::clone(&held), stamp, generation);
        Ok(Some(held))
    }

    fn unreadable(&self, name: &str, what: String) -> RecordsError {
        RecordsError::Content { path: self.directory.path_of(name), kind: RECORD, what }
    }

    /// Adds what `name` (without tag and digest) was pulled with to the record of an image. Whether a file was made
    /// that was not there. Blocks.
    pub(super) fn update(
        &self,
        image_ref: &str,
        name: Option<&str>,
        added: Option<&RecordedCredentials>,
    ) -> Result<bool, RecordsError> {
        let file = file_name(image_ref);
        for _ in 0..TRIES {
            let found = self.directory.read(&file)?;
            let known = found.as_ref().and_then(|content| match decode_record(&content.bytes) {
                Ok((record, Version::Beta | Version::Alpha)) => (record.image_ref == image_ref).then_some(record),
                Err(what) => {
                    let error = self.unreadable(&file, what);
                    tracing::warn!(%error, image_ref, "a pulled record is written again");
                    None
                }
            });
            let now = (self.wall_clock)();
            let record = match (&known, name) {
                (None, _) => Some(first(image_ref, name, added, now)),
                (Some(known), Some(name)) => merge(known, name, added, now),
                (Some(_), None) => None,
            };
            let Some(record) = record else {
                // Nothing is new, but the pull is: pruning that began before it must not take the record away.
                let lock = self.directory.lock()?;
                if !self.directory.is_still(&file, found.as_ref())? {
                    continue;
                }
                self.directory.touch(&file, now.as_second())?;
                drop(lock);
                return Ok(false);
            };
            if let Some(placed) = self.replace(&file, &record, found.as_ref())? {
                self.directory.sync()?;
                // Of no generation: another process may have replaced it by now, and the next look-up compares it.
                self.cache().put(image_ref, Arc::new(CachedRecord::new(record)), placed, 0);
                return Ok(found.is_none());
            }
        }
        let busy = std::io::Error::new(std::io::ErrorKind::ResourceBusy, "others change it all the time");
        Err(RecordsError::io("write", self.directory.path_of(&file))(busy))
    }

    /// Puts `record` in the place of the file that was read; `None` if that is no longer the one.
    fn replace(
        &self,
        file: &str,
        record: &PulledRecord,
        found: Option<&Content>,
    ) -> Result<Option<FileStamp>, RecordsError> {
        let draft = self.directory.draft(file, &encode_record(record))?;
        let _lock = self.directory.lock()?;
        if !self.directory.is_still(file, found)? {
            return Ok(None);
        }
        let Some(placed) = draft.place(file)? else { return Ok(None) };
        if let Some(second) = record.last_updated.map(Timestamp::as_second) {
            self.directory.touch(file, second)?;
        }
        stamp_of(&placed).map(Some).map_err(RecordsError::io("look at", self.directory.path_of(file)))
    }

    /// Removes the records of images that are not `present`, unless they were written at or after `before`. Returns how
    /// many were removed. Blocks.
    pub(super) fn prune(&self, present: &BTreeSet<String>, before: Timestamp) -> Result<usize, RecordsError> {
        let keep: HashSet<String> = present.iter().map(|image_ref| file_name(image_ref)).collect();
        let before = full_seconds(before);
        let names = self.directory.names()?;
        let mut removed = 0;
        let mut failed = None;
        for name in names.iter().filter(|name| !keep.contains(*name)) {
            match self.prune_one(name, before) {
                Ok(true) => removed += 1,
                Ok(false) => {}
                // No present image has this record, so its content is not needed.
                Err(error @ RecordsError::Content { .. }) => tracing::debug!(%error, "left where it is"),
                Err(error) => {
                    tracing::warn!(%error, "a pulled record is left where it is");
                    failed = failed.or(Some(error));
                }
            }
        }
        self.load(LoadPhase::Again)?;
        match failed {
            Some(error) => Err(error),
            None => Ok(removed),
        }
    }

    fn prune_one(&self, name: &str, before: Timestamp) -> Result<bool, RecordsError> {
        let Some(content) = self.directory.read(name)? else { return Ok(false) };
        let (record, _) = decode_record(&content.bytes).map_err(|what| self.unreadable(name, what))?;
        if file_name(&record.image_ref) != name {
            // No look-up finds a record under the name of another image.
            return Ok(false);
        }
        let _lock = self.directory.lock()?;
        if !self.directory.is_still(name, Some(&content))? {
            return Ok(false);
        }
        let affirmed = stamp_of(&content.into_file())
            .map_err(RecordsError::io("look at", self.directory.path_of(name)))?
            .modified_second();
        let newer = record.last_updated.is_some_and(|updated| updated >= before) || affirmed >= before.as_second();
        if newer {
            return Ok(false);
        }
        let removed = self.directory.remove(name)?;
        self.cache().forget(&record.image_ref);
        Ok(removed)
    }

    /// The time that records carry.
    pub(super) fn now(&self) -> Timestamp {
        (self.wall_clock)()
    }

    /// How many records there are. Blocks.
    pub(super) fn count(&self) -> Result<usize, RecordsError> {
        Ok(self.directory.names()?.len())
    }

    /// Reads all records, as far as there is room.
    fn load(&self, load: LoadPhase) -> Result<(), RecordsError> {
        let stamp = self.directory.stamp()?;
        let generation = {
            let mut cache = self.cache();
            let generation = cache.generation(stamp);
            if cache.authoritative(generation) {
                return Ok(());
            }
            generation
        };
        let mut names = self.directory.names()?;
        let capacity = self.cache().capacity();
        if load == LoadPhase::Again && names.len() > capacity {
            return Ok(());
        }
        names.sort_unstable();
        let read = self.read_all(&names);
        if load == LoadPhase::First && !self.directory.is_for_reading() && self.migrate(&names, &read) {
            return self.load(LoadPhase::Migrated);
        }
        let mut complete = names.len() <= capacity;
        let mut cache = self.cache();
        for (name, result) in names.iter().zip(read) {
            match result {
                Ok(Some((record, ..))) if file_name(&record.image_ref) != *name => {
                    // No look-up would find it under this name.
                }
                Ok(Some((record, _, stamp))) if cache.len() < capacity || load == LoadPhase::Again => {
                    let image_ref = record.image_ref.clone();
                    cache.put(&image_ref, Arc::new(CachedRecord::new(record)), stamp, generation);
                }
                Ok(Some(_) | None) => {}
                Err(error) => {
                    tracing::warn!(%error, "a pulled record is not used");
                    complete = false;
                }
            }
        }
        cache.listed(generation, complete);
        Ok(())
    }

    /// Rewrites records of the old version. Returns true if there were any.
    fn migrate(&self, names: &[String], read: &[ReadRecord]) -> bool {
        let mut migrated = false;
        for (name, read) in names.iter().zip(read) {
            let Ok(Some((record, Version::Alpha, _))) = read else { continue };
            let written = self.directory.read(name).and_then(|found| match found {
                // A change by another process meanwhile stays.
                Some(found) if decode_record(&found.bytes).is_ok_and(|(now, _)| now == *record) => {
                    self.replace(name, record, Some(&found)).map(|placed| placed.is_some())
                }
                _ => Ok(false),
            });
            match written {
                Ok(written) => migrated |= written,
                Err(error) => tracing::warn!(%error, "a pulled record stays in its old version"),
            }
        }
        if migrated && let Err(error) = self.directory.sync() {
            tracing::warn!(%error, "pulled records may come back in their old version");
        }
        migrated
    }

    /// Reads files on as many threads as are worth it.
    fn read_all(&self, names: &[String]) -> Vec<ReadRecord> {
        let one = |name: &String| self.read_one(name);
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(8).min(names.len() / 128 + 1);
        if threads == 1 {
            return names.iter().map(one).collect();
        }
        std::thread::scope(|scope| {
            let read = |part: &[String]| part.iter().map(one).collect::<Vec<_>>();
            let parts: Vec<_> = names
                .chunks(names.len().div_ceil(threads))
                .map(|part| (part, std::thread::Builder::new().spawn_scoped(scope, move || read(part))))
                .collect();
            let join = |(part, thread): (_, std::io::Result<std::thread::ScopedJoinHandle<'_, _>>)| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                // If no thread can be started, read on this thread.
                Err(_) => read(part),
            };
            parts.into_iter().flat_map(join).collect()
        })
    }

    fn read_one(&self, name: &str) -> ReadRecord {
        let Some(content) = self.directory.read(name)? else { return Ok(None) };
        let (record, version) = decode_record(&content.bytes).map_err(|what| self.unreadable(name, what))?;
        Ok(Some((record, version, content.stamp)))
    }
}
