//! What collection knows across restarts: the [`UsageHistory`] and the [`Pins`], each a JSON file that is replaced as a
//! whole. A file that cannot be read is put aside and told, never overwritten. Blocking: callers are off the async threads.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::history::{UsageHistory, UsageRecord};
use super::pressure::Pressure;
use super::rules::Pins;

const API_VERSION: &str = "imagelet.dev/v1alpha1";

/// Why a file of the state could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{what} {}", path.display())]
pub struct StateError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl StateError {
    /// Whether it failed for lack of space.
    pub(super) fn is_disk_full(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}

/// The directory of the files.
#[derive(Clone, Debug)]
pub struct StateFiles {
    directory: PathBuf,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document<T> {
    api_version: String,
    kind: String,
    state: T,
}

impl StateFiles {
    /// Files in `directory`, which is made when something is written.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// The history as it was stored; empty where there is none. The path of a file that had to be put aside comes with it.
    ///
    /// # Errors
    /// The file cannot be read, or not be put aside.
    pub fn history(&self) -> Result<(UsageHistory, Option<PathBuf>), StateError> {
        let (records, aside) = self.read::<BTreeMap<Box<str>, UsageRecord>>("usage.json", "ImageUsage")?;
        let mut history = UsageHistory::default();
        for (key, record) in records.unwrap_or_default() {
            history.insert(key, record);
        }
        Ok((history, aside))
    }

    /// Stores the history.
    ///
    /// # Errors
    /// It cannot be written; the one before is still there.
    pub fn store_history(&self, history: &UsageHistory) -> Result<(), StateError> {
        self.write("usage.json", "ImageUsage", &history.iter().collect::<BTreeMap<_, _>>())
    }

    /// The pins as they were stored.
    ///
    /// # Errors
    /// As for [`StateFiles::history`].
    pub fn pins(&self) -> Result<(Pins, Option<PathBuf>), StateError> {
        let (pins, aside) = self.read("pins.json", "ImagePins")?;
        Ok((pins.unwrap_or_default(), aside))
    }

    /// Stores the pins.
    ///
    /// # Errors
    /// They cannot be written; those before are still there.
    pub fn store_pins(&self, pins: &Pins) -> Result<(), StateError> {
        self.write("pins.json", "ImagePins", pins)
    }

    /// What was stored of disk pressure.
    pub(super) fn pressure(&self) -> Result<(Pressure, Option<PathBuf>), StateError> {
        let (pressure, aside) = self.read("pressure.json", "DiskPressure")?;
        Ok((pressure.unwrap_or_default(), aside))
    }

    /// Stores what is known of disk pressure.
    pub(super) fn store_pressure(&self, pressure: Pressure) -> Result<(), StateError> {
        self.write("pressure.json", "DiskPressure", &pressure)
    }

    fn read<T: DeserializeOwned>(&self, name: &str, kind: &str) -> Result<(Option<T>, Option<PathBuf>), StateError> {
        let path = self.directory.join(name);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((None, None)),
            Err(source) => return Err(StateError { what: "read", path, source }),
        };
        match serde_json::from_slice::<Document<T>>(&text) {
            Ok(document) if document.api_version == API_VERSION && document.kind == kind => {
                Ok((Some(document.state), None))
            }
            // Of a newer version, or broken: it stays for whoever can read it.
            _ => {
                let aside = free_name(&path);
                fs::rename(&path, &aside).map_err(|source| StateError { what: "put aside", path, source })?;
                Ok((None, Some(aside)))
            }
        }
    }

    fn write(&self, name: &str, kind: &str, state: &impl Serialize) -> Result<(), StateError> {
        let path = self.directory.join(name);
        let document = Document { api_version: API_VERSION.to_owned(), kind: kind.to_owned(), state };
        let result = serde_json::to_vec(&document).map_err(io::Error::other).and_then(|text| replace(&path, &text));
        result.map_err(|source| StateError { what: "write", path, source })
    }
}

/// Replaces a file by one that is whole and on the disk.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    let new = path.with_extension(format!("json.{}.tmp", std::process::id()));
    let written =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new).and_then(|mut file| {
            file.write_all(text)?;
            file.sync_all()
        });
    if let Err(error) = written.and_then(|()| fs::rename(&new, path)) {
        let _ = fs::remove_file(&new);
        return Err(error);
    }
    File::open(directory)?.sync_all()
}

fn free_name(path: &Path) -> PathBuf {
    let name = |number: u32| path.with_extension(format!("json.unreadable-{number}"));
    (1..).map(name).find(|candidate| !candidate.exists()).unwrap_or_else(|| name(0))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::gc::rules::Pattern;

    #[test]
    fn what_was_stored_comes_back() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let files = StateFiles::new(directory.path().join("state"));
        assert!(files.history().expect("none is no error").0.is_empty());
        let mut history = UsageHistory::default();
        let time = Timestamp::from_second(1_700_000_000).expect("in range");
        history.insert(
            "a",
            UsageRecord { last_used: Some(time), used_by: "shop/web/main".into(), ..UsageRecord::new(time) },
        );
        history.insert("b,kata", UsageRecord::new(time));
        files.store_history(&history).expect("stored");
        let (back, aside) = files.history().expect("read");
        assert_eq!((back, aside), (history, None));

        let mut pins = Pins::default();
        pins.pin(Pattern::parse("busybox").expect("a pattern"));
        files.store_pins(&pins).expect("stored");
        assert_eq!(files.pins().expect("read").0, pins);
        let names: Vec<_> = fs::read_dir(directory.path().join("state"))
            .expect("there")
            .map(|entry| entry.expect("entry").file_name().into_string().expect("text"))
            .collect();
        assert!(names.iter().all(|name| name == "usage.json" || name == "pins.json"), "{names:?}");
    }

    #[test]
    fn what_cannot_be_read_is_put_aside() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let files = StateFiles::new(directory.path());
        let path = directory.path().join("usage.json");
        let texts = ["{", "{\"apiVersion\":\"imagelet.dev/v9\",\"kind\":\"ImageUsage\",\"state\":{}}", "[]"];
        for (number, text) in texts.iter().enumerate() {
            fs::write(&path, text).expect("written");
            let (history, aside) = files.history().expect("put aside");
            let aside = aside.expect("told");
            assert!(history.is_empty());
            assert_eq!(aside, directory.path().join(format!("usage.json.unreadable-{}", number + 1)));
            assert_eq!(fs::read_to_string(aside).expect("kept"), *text);
        }
        fs::create_dir(&path).expect("made");
        let error = files.history().expect_err("a directory").to_string();
        assert!(error.starts_with("read ") && error.ends_with("usage.json"), "{error}");
    }
}
