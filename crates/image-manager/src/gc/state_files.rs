//! State of collection across restarts: the [`UsageHistory`], the [`Pins`] and the state of disk pressure, each a JSON
//! file that is replaced as a whole. A file that cannot be read is put aside and reported, never overwritten. Several
//! processes may share the directory: the state on disk is merged with that of the process. Blocking: callers are off the
//! async threads.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use base::FileIdentity;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::history::{Stored, UsageHistory, UsageRecord};
use super::keep_rules::{PinOwner, Pins};
use super::pressure::Pressure;
use crate::RecordsError;
use crate::records::files::{Directory, Use};

const API_VERSION: &str = "imagelet.dev/v1alpha1";
const USAGE: (&str, &str) = ("usage.json", "ImageUsage");
const PINS: (&str, &str) = ("pins.json", "ImagePins");
const SET_PINS: (&str, &str) = ("image-set-pins.json", "ImageSetPins");
const PRESSURE: (&str, &str) = ("pressure.json", "DiskPressure");

/// Why a file of the state could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The system refused.
    #[error("{what} {}", path.display())]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// To what.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// An error of the module that replaces files.
    #[error(transparent)]
    Replace(#[from] RecordsError),
}

impl StateError {
    /// Returns true if there was no space for the file.
    pub(super) fn is_disk_full(&self) -> bool {
        match self {
            Self::Io { source, .. } => base::is_disk_full(source),
            Self::Replace(error) => error.is_disk_full(),
        }
    }
}

/// Content of a state file.
#[derive(Debug)]
pub(super) struct Read<T> {
    /// `None`: there is no file, or it had to be put aside.
    pub(super) state: Option<T>,
    pub(super) stamp: Option<FileIdentity>,
    /// Where a file is now that could not be read.
    pub(super) aside: Option<PathBuf>,
}

/// The directory of the files.
#[derive(Clone, Debug)]
pub struct StateFiles {
    directory: PathBuf,
    /// True if usage and pressure are synced to the disk when they are stored. Pins always are, because a user set them.
    durable: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StateDocument<T> {
    api_version: String,
    kind: String,
    state: T,
}

impl StateFiles {
    /// Files in `directory`, which is made when something is written.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), durable: true }
    }

    /// The same files, of which those that only remember are left to the page cache.
    #[must_use]
    pub fn unsynced(self) -> Self {
        Self { durable: false, ..self }
    }

    fn open(&self) -> Result<Directory, StateError> {
        let used = if self.durable { Use::Shared } else { Use::SharedUnsynced };
        Ok(Directory::open_for(self.directory.clone(), used)?)
    }

    /// The history as it was stored. `Ok(None)`: it is the file of that stamp, so that there is nothing new in it.
    ///
    /// # Errors
    /// The file cannot be read, or not be put aside.
    pub(super) fn history(&self, known: Option<FileIdentity>) -> Result<Option<Read<UsageHistory>>, StateError> {
        let read = self.read::<Stored<BTreeMap<Box<str>, UsageRecord>>>(USAGE, known)?;
        Ok(read.map(|Read { state, stamp, aside }| Read { state: state.map(Stored::into_history), stamp, aside }))
    }

    /// Stores the history, joined with what another process has written since the file of that stamp.
    ///
    /// # Errors
    /// The file cannot be written; the version before is still there.
    pub(super) fn store_history(
        &self,
        history: &mut UsageHistory,
        known: Option<FileIdentity>,
    ) -> Result<Option<FileIdentity>, StateError> {
        let directory = self.open()?;
        let lock = directory.lock()?;
        if let Some(Read { state: Some(theirs), .. }) = self.history(known)? {
            history.merge(theirs);
        }
        let stamp = self.write(&directory, USAGE, &Stored::of(history));
        drop(lock);
        stamp
    }

    /// The pins of an owner as they were stored.
    ///
    /// # Errors
    /// As for [`StateFiles::history`].
    pub(super) fn pins(&self, of: PinOwner, known: Option<FileIdentity>) -> Result<Option<Read<Pins>>, StateError> {
        self.read(file_of(of), known)
    }

    /// Changes the stored pins of an owner. Answers whether that changed anything, and the pins. Nothing is written that is there
    /// already.
    ///
    /// # Errors
    /// They cannot be written; those before are still there.
    pub(super) fn change_pins(
        &self,
        of: PinOwner,
        change: impl FnOnce(&mut Pins) -> bool,
    ) -> Result<(bool, Pins, Option<FileIdentity>), StateError> {
        let directory = Directory::open(self.directory.clone())?;
        let lock = directory.lock()?;
        let read = self.pins(of, None)?;
        let (state, mut stamp) = read.map(|read| (read.state, read.stamp)).unwrap_or_default();
        let mut pins = state.unwrap_or_default();
        let changed = change(&mut pins);
        if changed {
            stamp = self.write(&directory, file_of(of), &pins)?;
        }
        drop(lock);
        Ok((changed, pins, stamp))
    }

    /// Reads the stored state of disk pressure.
    pub(super) fn pressure(&self) -> Result<(Pressure, Option<PathBuf>), StateError> {
        let read = self.read(PRESSURE, None)?;
        Ok(read.map(|read| (read.state.unwrap_or_default(), read.aside)).unwrap_or_default())
    }

    /// Stores what is known of disk pressure.
    pub(super) fn store_pressure(&self, pressure: Pressure) -> Result<(), StateError> {
        let directory = self.open()?;
        let _lock = directory.lock()?;
        self.write(&directory, PRESSURE, &pressure).map(drop)
    }

    fn read<T: DeserializeOwned>(
        &self,
        (name, kind): (&str, &str),
        known: Option<FileIdentity>,
    ) -> Result<Option<Read<T>>, StateError> {
        let path = self.directory.join(name);
        let (text, stamp) = match read_whole(&path, known) {
            Ok(Some(read)) => read,
            Ok(None) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Some(Read { state: None, stamp: None, aside: None }));
            }
            Err(source) => return Err(StateError::Io { what: "read", path, source }),
        };
        match serde_json::from_slice::<StateDocument<T>>(&text) {
            Ok(document) if document.api_version == API_VERSION && document.kind == kind => {
                Ok(Some(Read { state: Some(document.state), stamp: Some(stamp), aside: None }))
            }
            // Of a newer version, or broken: keep it for a newer version or for the administrator.
            _ => {
                let aside = free_name(&path);
                fs::rename(&path, &aside).map_err(|source| StateError::Io { what: "put aside", path, source })?;
                Ok(Some(Read { state: None, stamp: None, aside: Some(aside) }))
            }
        }
    }

    /// Replaces a file. The caller holds the directory's lock.
    fn write(
        &self,
        directory: &Directory,
        (name, kind): (&str, &str),
        state: &impl Serialize,
    ) -> Result<Option<FileIdentity>, StateError> {
        let path = self.directory.join(name);
        let document = StateDocument { api_version: API_VERSION.to_owned(), kind: kind.to_owned(), state };
        let failed = |source| StateError::Io { what: "write", path, source };
        let text = serde_json::to_vec(&document).map_err(io::Error::other).map_err(failed)?;
        let draft = directory.draft(name, &text)?;
        let placed = draft.place(name)?;
        directory.sync()?;
        // Without it the file is read once more, that is all.
        Ok(placed.and_then(|file| File::from(file).metadata().ok()).map(|file| FileIdentity::from(&file)))
    }
}

/// Returns the name and kind of the file with the pins of an owner.
fn file_of(owner: PinOwner) -> (&'static str, &'static str) {
    match owner {
        PinOwner::Administrator => PINS,
        PinOwner::ImageSets => SET_PINS,
    }
}

/// The content of a file; `None`: it is the one that is known.
fn read_whole(path: &Path, known: Option<FileIdentity>) -> io::Result<Option<(Vec<u8>, FileIdentity)>> {
    let mut file = File::open(path)?;
    let stamp = FileIdentity::from(&file.metadata()?);
    if known == Some(stamp) {
        return Ok(None);
    }
    let mut text = Vec::with_capacity(usize::try_from(stamp.size).unwrap_or(0) + 1);
    file.read_to_end(&mut text)?;
    Ok(Some((text, stamp)))
}

fn free_name(path: &Path) -> PathBuf {
    let name = |number: u32| path.with_extension(format!("json.unreadable-{number}"));
    (1..).map(name).find(|candidate| !candidate.exists()).unwrap_or_else(|| name(0))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::gc::keep_rules::Pattern;

    fn used(second: i64) -> UsageRecord {
        let time = Timestamp::from_second(second).expect("in range");
        UsageRecord { last_used: Some(time), used_by: "shop/web/main".into(), ..UsageRecord::new(time) }
    }

    fn history(files: &StateFiles) -> Read<UsageHistory> {
        files.history(None).expect("read").expect("not known before")
    }

    fn pattern(text: &str) -> Pattern {
        Pattern::parse(text).expect("a pattern")
    }

    #[test]
    fn a_stored_history_is_read_again() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let files = StateFiles::new(directory.path().join("state"));
        assert!(history(&files).state.is_none());
        let mut known = UsageHistory::default();
        known.begin_pass(Timestamp::from_second(1_700_000_100).expect("in range").into());
        known.insert("a", used(1_700_000_000));
        known.insert("b,kata", UsageRecord { pulled_at: 7, ..used(1_700_000_000) });
        let stamp = files.store_history(&mut known, None).expect("stored");
        let read = history(&files);
        assert_eq!((read.state, read.stamp, read.aside), (Some(known), stamp, None));
        assert!(stamp.is_some() && files.history(stamp).expect("read").is_none(), "nothing new in it");

        let change = files.change_pins(PinOwner::Administrator, |pins| pins.pin(pattern("busybox"))).expect("stored");
        assert!(change.0);
        assert!(!files.change_pins(PinOwner::Administrator, |pins| pins.pin(pattern("busybox"))).expect("there").0);
        assert_eq!(
            files.pins(PinOwner::Administrator, None).expect("read").and_then(|read| read.state),
            Some(change.1)
        );
        let names: Vec<_> = fs::read_dir(directory.path().join("state"))
            .expect("there")
            .map(|entry| entry.expect("entry").file_name().into_string().expect("text"))
            .collect();
        assert!(names.iter().all(|name| name == "usage.json" || name == "pins.json"), "{names:?}");
    }

    #[test]
    fn two_processes_lose_nothing_of_each_other() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let files = StateFiles::new(directory.path());
        let mut first = UsageHistory::default();
        first.insert("a", used(100));
        let stamp = files.store_history(&mut first, None).expect("stored");
        // The other process starts, and protects an image.
        let mut second = history(&files).state.expect("there");
        let until = Timestamp::from_second(9000).expect("in range");
        second.protect("b", "", Timestamp::UNIX_EPOCH, until);
        files.store_history(&mut second, stamp).expect("stored");
        // The first one knows nothing of it, and writes.
        first.insert("a", used(200));
        files.store_history(&mut first, stamp).expect("stored");
        let read = history(&files).state.expect("there");
        assert_eq!(read.get("a", "").and_then(|record| record.last_used), used(200).last_used);
        assert_eq!(read.get("b", "").and_then(|record| record.protected_until), Some(until));
        assert_eq!(first, read, "and it has learnt it");

        files.change_pins(PinOwner::Administrator, |pins| pins.pin(pattern("one"))).expect("stored");
        files.change_pins(PinOwner::Administrator, |pins| pins.pin(pattern("two"))).expect("stored");
        let pins = files.change_pins(PinOwner::Administrator, |pins| pins.unpin(&pattern("one"))).expect("stored").1;
        assert_eq!(pins.iter().map(Pattern::as_str).collect::<Vec<_>>(), ["two"]);
    }

    #[test]
    fn pins_of_two_owners_are_separate() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let files = StateFiles::new(directory.path());
        files.change_pins(PinOwner::Administrator, |pins| pins.pin(pattern("one"))).expect("stored");
        files.change_pins(PinOwner::ImageSets, |pins| pins.pin(pattern("two"))).expect("stored");
        for (owner, want) in [(PinOwner::Administrator, "one"), (PinOwner::ImageSets, "two")] {
            let read = files.pins(owner, None).expect("read").and_then(|read| read.state).expect("there");
            assert_eq!(read.iter().map(Pattern::as_str).collect::<Vec<_>>(), [want]);
        }
    }

    #[test]
    fn what_cannot_be_read_is_put_aside() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let files = StateFiles::new(directory.path());
        let path = directory.path().join("usage.json");
        let texts =
            ["{", "{\"apiVersion\":\"imagelet.dev/v9\",\"kind\":\"ImageUsage\",\"state\":{\"images\":{}}}", "[]"];
        for (number, text) in texts.iter().enumerate() {
            fs::write(&path, text).expect("written");
            let read = history(&files);
            let aside = read.aside.expect("told");
            assert!(read.state.is_none());
            assert_eq!(aside, directory.path().join(format!("usage.json.unreadable-{}", number + 1)));
            assert_eq!(fs::read_to_string(aside).expect("kept"), *text);
        }
        fs::create_dir(&path).expect("made");
        let error = files.history(None).expect_err("a directory").to_string();
        assert!(error.starts_with("read ") && error.ends_with("usage.json"), "{error}");
    }
}
