//! [`Pulling`]: the pull intents, on disk and in memory. An intent means that the image may appear, and must then not be
//! taken for a preloaded one.
//!
//! During a pull its process shares a lock on the intent's file. So the last of several processes with the same intent
//! removes it, and an intent that a killed process left can be distinguished from one that is in use.

use base::lock::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use oci::Reference;

use super::RecordsError;
use super::files::{Directory, DirectoryStamp, Lock, Use, is_unshared, share};
use super::format::{INTENT, Version, decode_intent, encode_intent, file_name};
use crate::requested_name::RequestedName;

/// How often a file is written again after another process removed it.
const TRIES: usize = 8;

pub(super) struct Pulling {
    directory: Directory,
    capacity: usize,
    /// Guards what is known of the directory; held for look-ups and changes of the maps alone.
    seen: Mutex<SeenIntents>,
}

/// The directory as it was listed last.
#[derive(Debug, Default)]
struct SeenIntents {
    /// `None`: there are more than memory has room for.
    stamp: Option<DirectoryStamp>,
    intents: Arc<Intents>,
    /// How many there were.
    count: usize,
}

/// A whole listing.
#[derive(Debug, Default)]
struct Intents {
    /// Image by file name; the content of a file follows from its name, so that no file is read twice.
    images: HashMap<String, Arc<str>>,
    /// Every image, as it was asked for and in normal form.
    names: HashSet<Arc<str>>,
    /// Files that cannot be read.
    broken: HashMap<String, String>,
}

impl Pulling {
    /// Opens the directory and migrates old files.
    pub(super) fn open(path: PathBuf, used: Use, capacity: usize) -> Result<Self, RecordsError> {
        let directory = Directory::open_for(path, used)?;
        let pulling = Self { directory, capacity: capacity.max(1), seen: Mutex::default() };
        if used != Use::Reading {
            pulling.migrate()?;
        }
        pulling.list()?;
        Ok(pulling)
    }

    fn seen(&self) -> MutexGuard<'_, SeenIntents> {
        // Nothing that panics is called with it held, and a listing is put in whole.
        self.seen.lock()
    }

    /// How full the memory is, in percent.
    pub(super) fn usage(&self) -> i64 {
        let count = self.seen().count.min(self.capacity);
        i64::try_from(count * 100 / self.capacity).unwrap_or(100)
    }

    /// How many intents there are. Blocks.
    pub(super) fn count(&self) -> Result<usize, RecordsError> {
        self.list()?;
        Ok(self.seen().count)
    }

    /// Returns true if an image has an intent, in any spelling; `None` if only the disk can say.
    pub(super) fn lookup(&self, image: &RequestedName<'_>) -> Result<Option<bool>, RecordsError> {
        let stamp = self.directory.stamp()?;
        let intents = {
            let seen = self.seen();
            if !seen.stamp.is_some_and(|known| known.still_is(&stamp)) {
                return Ok(None);
            }
            Arc::clone(&seen.intents)
        };
        self.judge(&intents, image).map(Some)
    }

    /// The same, with waiting. Blocks.
    pub(super) fn exists(&self, image: &RequestedName<'_>) -> Result<bool, RecordsError> {
        let intents = self.list()?;
        self.judge(&intents, image)
    }

    fn judge(&self, intents: &Intents, image: &RequestedName<'_>) -> Result<bool, RecordsError> {
        if intents.names.is_empty() && intents.broken.is_empty() {
            return Ok(false);
        }
        let canonical = || image.reference().map(|reference| reference.clone().canonical().to_string());
        if intents.names.contains(image.text()) || canonical().is_some_and(|name| intents.names.contains(&*name)) {
            return Ok(true);
        }
        let file = file_name(image.text());
        match intents.broken.get(&file) {
            Some(what) => Err(self.unreadable(&file, what.clone())),
            None => Ok(false),
        }
    }

    /// Every image with an intent. Blocks.
    pub(super) fn images(&self) -> Result<Vec<Arc<str>>, RecordsError> {
        Ok(self.list()?.images.values().cloned().collect())
    }

    /// Lists the directory, and keeps the list if there is room.
    fn list(&self) -> Result<Arc<Intents>, RecordsError> {
        let stamp = self.directory.stamp()?;
        let known = Arc::clone(&self.seen().intents);
        let mut intents = Intents::default();
        for file in self.directory.names()? {
            let image = match known.images.get(&file) {
                Some(image) => Arc::clone(image),
                None => match self.read(&file) {
                    Ok(Some(image)) => image.into(),
                    Ok(None) => continue,
                    Err(RecordsError::Content { what, path, .. }) => {
                        tracing::warn!(path = %path.display(), what, "a pull intent cannot be read");
                        intents.broken.insert(file, what);
                        continue;
                    }
                    Err(error) => return Err(error),
                },
            };
            if let Some(name) = normal(&image) {
                intents.names.insert(name.into());
            }
            intents.names.insert(Arc::clone(&image));
            intents.images.insert(file, image);
        }
        let intents = Arc::new(intents);
        let count = intents.images.len() + intents.broken.len();
        *self.seen() = if count <= self.capacity {
            SeenIntents { stamp: Some(stamp), intents: Arc::clone(&intents), count }
        } else {
            SeenIntents { count, ..SeenIntents::default() }
        };
        Ok(intents)
    }

    /// Returns the image of an intent's file; `None` for a file under the name of another image.
    fn read(&self, file: &str) -> Result<Option<String>, RecordsError> {
        let Some(content) = self.directory.read(file)? else { return Ok(None) };
        let (image, _) = decode_intent(&content.bytes).map_err(|what| self.unreadable(file, what))?;
        Ok((file_name(&image) == file).then_some(image))
    }

    fn unreadable(&self, file: &str, what: String) -> RecordsError {
        RecordsError::Content { path: self.directory.path_of(file), kind: INTENT, what }
    }

    /// Makes sure that there is an intent, and takes a share in it. It outlives the process; for a stop of the machine see
    /// [`Pulling::settle`]. Blocks.
    pub(super) fn hold(&self, image: &str) -> Result<Lock, RecordsError> {
        let file = file_name(image);
        let mut draft = None;
        for _ in 0..TRIES {
            let lock = self.directory.lock()?;
            let there = self
                .directory
                .read(&file)?
                .filter(|content| decode_intent(&content.bytes).is_ok_and(|(found, _)| found == image));
            let held = match (there, draft.take()) {
                (Some(content), _) => Some(content.into_file()),
                (None, None) => {
                    drop(lock);
                    draft = Some(self.directory.loose_draft(&file, &encode_intent(image))?);
                    continue;
                }
                // `None`: another process removed the draft.
                (None, Some(draft)) => draft.place(&file)?,
            };
            let Some(held) = held else { continue };
            let lease = share(held).map_err(RecordsError::io("lock", self.directory.path_of(&file)))?;
            drop(lock);
            return Ok(lease);
        }
        let removed = std::io::Error::new(std::io::ErrorKind::NotFound, "another process keeps removing it");
        Err(RecordsError::io("write", self.directory.path_of(&file))(removed))
    }

    /// Makes an intent that is held outlive a stop of the machine, whichever process wrote it. Blocks.
    pub(super) fn settle(&self, image: &str) -> Result<(), RecordsError> {
        let file = file_name(image);
        let Some(content) = self.directory.read(&file)? else {
            let removed = std::io::Error::new(std::io::ErrorKind::NotFound, "another process removed it");
            return Err(RecordsError::io("make durable", self.directory.path_of(&file))(removed));
        };
        self.directory.sync_file(&file, &content.into_file())?;
        self.directory.sync()
    }

    /// Returns a share, and removes the intent if it was the last one. Returns true if the intent was removed. Blocks.
    pub(super) fn release(&self, image: &str, lease: impl Into<Option<Lock>>) -> Result<bool, RecordsError> {
        let file = file_name(image);
        let _lock = self.directory.lock()?;
        drop(lease.into());
        if self.is_in_use(&file)? {
            return Ok(false);
        }
        self.directory.remove(&file)
    }

    /// Removes an intent that has no shares and was written before `time`. Returns true if it was removed. Blocks.
    pub(super) fn release_if_older(&self, image: &str, time: Timestamp) -> Result<bool, RecordsError> {
        let file = file_name(image);
        let _lock = self.directory.lock()?;
        let old = self.directory.read(&file)?.is_some_and(|content| content.stamp.modified_second() < time.as_second());
        if !old || self.is_in_use(&file)? {
            return Ok(false);
        }
        self.directory.remove(&file)
    }

    /// Returns true if a live process has a share in the intent for `image`. Blocks.
    pub(super) fn is_held(&self, image: &str) -> Result<bool, RecordsError> {
        let _lock = self.directory.lock()?;
        self.is_in_use(&file_name(image))
    }

    /// The caller holds the directory's lock.
    fn is_in_use(&self, file: &str) -> Result<bool, RecordsError> {
        let Some(content) = self.directory.read(file)? else { return Ok(false) };
        is_unshared(content.into_file())
            .map(|free| !free)
            .map_err(RecordsError::io("lock", self.directory.path_of(file)))
    }

    /// Rewrites files of the old version. Files that cannot be read are left as they are.
    fn migrate(&self) -> Result<(), RecordsError> {
        for file in self.directory.names()? {
            let Some(content) = self.directory.read(&file)? else { continue };
            let Ok((image, Version::Alpha)) = decode_intent(&content.bytes) else { continue };
            let draft = self.directory.draft(&file, &encode_intent(&image))?;
            let _lock = self.directory.lock()?;
            if self.directory.is_still(&file, Some(&content))? && !self.is_in_use(&file)? {
                draft.place(&file)?;
                self.directory.sync()?;
            }
        }
        Ok(())
    }
}

/// Returns the form that all spellings of a name have in common, for names that were read from a file or listed by a runtime.
pub(super) fn normal(image: &str) -> Option<String> {
    Reference::parse(image).ok().map(|reference| reference.canonical().to_string())
}
