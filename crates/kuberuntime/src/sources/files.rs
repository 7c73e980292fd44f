//! [`DirectoryFiles`]: the content of a directory's files that counts, as a pure function of events, listings and the
//! results of reads. It decides when a file is to be read, which file keeps its last valid content, and when a file
//! counts as removed. Reads nothing, knows no clock and no manifest. Called by [`super::directory`].
//!
//! A file is read when no process is writing it: at its `CLOSE_WRITE`, or when it was moved in. The result of a read
//! counts only if nothing happened to the file meanwhile: the reader drains the events before it reports the result. A
//! file that is new or changed, but was not seen being written, is read once it has rested.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::time::Duration;

use base::FileIdentity;
use tokio::time::Instant;

/// Extensions of manifests. A file of another name may be an editor's temporary file: when it is new, it has to rest
/// first.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];
/// A file that is being written for this long is reported.
const LONG: Duration = Duration::from_secs(10);

/// A file in a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListedFile {
    pub(super) ident: FileIdentity,
    /// True if the last write is so long ago that the file is probably not being written.
    pub(super) rested: bool,
}

/// A change of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The file is new.
    Created,
    /// The file is being written.
    Modified,
    /// The file was closed after a write.
    Closed,
    /// A complete file was moved into the directory.
    MovedIn,
    /// The file was deleted, or moved away.
    Removed,
    /// The permissions changed.
    Attributes,
}

/// Result of reading a file.
#[derive(Clone, Debug)]
pub(super) enum ReadOutcome<T, P> {
    /// The content is valid.
    Good(FileIdentity, Arc<T>),
    /// The content is not valid, or cannot be read.
    Bad(Option<FileIdentity>, P),
    Absent,
    /// Unknown, because the directory of the file cannot be read.
    Unknown,
    /// A directory, which is ignored.
    Directory,
}

/// A file to be read, and the state of things at that moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PendingRead {
    pub(super) name: OsString,
    generation: u64,
}

#[derive(Debug)]
pub(super) struct FileState<T, P> {
    /// Time at which the file was first seen.
    pub(super) since: Instant,
    /// Last valid content.
    pub(super) good: Option<Arc<T>>,
    /// The present problem, and the time since which it lasts.
    problem: Option<(P, Instant)>,
    /// Start of the write that has not ended.
    writing: Option<Instant>,
    /// True if the file was read, or is being written. Nothing more can be known soon.
    known: bool,
    generation: u64,
    read_at: Option<Instant>,
    /// Time at which an absent file counts as removed.
    missing: Option<Instant>,
    /// Attributes of the file when it began to rest.
    unproven: Option<FileIdentity>,
    /// Attributes of the file when it was read.
    seen: Option<FileIdentity>,
}

#[derive(Debug)]
pub(super) struct DirectoryFiles<T, P> {
    entries: BTreeMap<OsString, FileState<T, P>>,
    quiet: Duration,
}

impl<T, P> FileState<T, P> {
    fn new(now: Instant) -> Self {
        Self {
            since: now,
            good: None,
            problem: None,
            writing: None,
            known: false,
            generation: 0,
            read_at: None,
            missing: None,
            unproven: None,
            seen: None,
        }
    }

    /// Returns true if the file has no valid content yet, so that its pods are unknown.
    pub(super) fn is_held(&self) -> bool {
        self.good.is_none()
    }

    /// Returns the file's problem, once it has lasted for `quiet`.
    pub(super) fn problem(&self, now: Instant, quiet: Duration) -> Option<&P> {
        self.problem.as_ref().filter(|(_, since)| *since + quiet <= now).map(|(problem, _)| problem)
    }

    /// Returns true if the file has been written for long.
    pub(super) fn is_written_long(&self, now: Instant) -> bool {
        self.writing.is_some_and(|since| since + LONG <= now)
    }

    fn happened(&mut self) {
        self.generation += 1;
        self.missing = None;
    }

    /// Schedules a read for when the file has rested, because it is not known whether it is being written.
    fn rest(&mut self, ident: FileIdentity, at: Instant) {
        (self.unproven, self.read_at) = (Some(ident), Some(at));
    }
}

impl<T, P: PartialEq> DirectoryFiles<T, P> {
    pub(super) fn new(quiet: Duration) -> Self {
        Self { entries: BTreeMap::new(), quiet }
    }

    /// Returns all files by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&OsStr, &FileState<T, P>)> {
        self.entries.iter().map(|(name, entry)| (name.as_os_str(), entry))
    }

    /// Returns true if no file was seen.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the last valid content of a file.
    pub(super) fn good(&self, name: &OsStr) -> Option<Arc<T>> {
        self.entries.get(name)?.good.clone()
    }

    /// Returns true if every file was read or is being written.
    pub(super) fn is_known(&self) -> bool {
        self.entries.values().all(|entry| entry.known)
    }

    /// Records a change of a file.
    pub(super) fn happened(&mut self, name: &OsStr, change: Change, now: Instant) {
        if change == Change::Removed {
            if let Some(entry) = self.entries.get_mut(name) {
                entry.happened();
                (entry.writing, entry.read_at, entry.unproven) = (None, None, None);
                entry.missing = Some(now + self.quiet);
            }
            return;
        }
        let quiet = self.quiet;
        let entry = self.entries.entry(name.to_owned()).or_insert_with(|| FileState::new(now));
        entry.happened();
        match change {
            Change::Modified => {
                entry.writing.get_or_insert(now);
                (entry.read_at, entry.unproven, entry.known) = (None, None, true);
            }
            // The writer will close the file, and it is read then.
            Change::Attributes if entry.writing.is_some() => {}
            // A file that is due to be read after a rest keeps resting.
            Change::Attributes if entry.read_at.is_some() => {}
            Change::Created | Change::Closed | Change::MovedIn | Change::Attributes => {
                (entry.writing, entry.unproven) = (None, None);
                let at_once = entry.good.is_some() || is_manifest(name);
                entry.read_at = Some(if at_once { now } else { now + quiet });
            }
            Change::Removed => {}
        }
    }

    /// Records that events were lost, so that the files which are being written are unknown.
    pub(super) fn distrust(&mut self, now: Instant) {
        for entry in self.entries.values_mut() {
            entry.generation += 1;
            entry.writing = None;
            match &mut entry.missing {
                // No file has this identity: it rests at least once.
                None => entry.rest(FileIdentity::default(), now + self.quiet),
                // The file may have been present meanwhile, and removed again just now.
                Some(until) => *until = now + self.quiet,
            }
        }
    }

    /// Records a listing. `switched` is true if links may have got other targets.
    pub(super) fn listed(&mut self, found: &BTreeMap<OsString, ListedFile>, switched: bool, now: Instant) {
        let removed: Vec<OsString> = self.entries.keys().filter(|name| !found.contains_key(*name)).cloned().collect();
        for name in removed {
            if self.entries[&name].missing.is_none() {
                self.happened(&name, Change::Removed, now);
            }
        }
        for (name, file) in found {
            let later = now + self.quiet;
            let Some(entry) = self.entries.get_mut(name) else {
                let mut entry = FileState::new(now);
                entry.rest(file.ident, later);
                if file.rested && is_manifest(name) {
                    (entry.unproven, entry.read_at) = (None, Some(now));
                }
                self.entries.insert(name.clone(), entry);
                continue;
            };
            if entry.missing.is_some() {
                // The file is present again, and no event reported how.
                entry.happened();
                entry.rest(file.ident, later);
            } else if entry.writing.is_some() || entry.read_at.is_some() {
                // It will be read.
            } else if entry.seen != Some(file.ident) {
                entry.generation += 1;
                let is_other = entry.seen.is_none_or(|seen| !seen.is_same_file(file.ident));
                if file.rested || (switched && is_other) {
                    entry.read_at = Some(now);
                } else {
                    entry.rest(file.ident, later);
                }
            }
        }
    }

    /// Schedules another read of files whose problem may pass without a change.
    pub(super) fn retry(&mut self, may_pass: impl Fn(&P) -> bool, now: Instant) {
        for entry in self.entries.values_mut() {
            let idle = entry.writing.is_none() && entry.read_at.is_none() && entry.missing.is_none();
            if idle && entry.problem.as_ref().is_some_and(|(problem, _)| may_pass(problem)) {
                entry.read_at = Some(now);
            }
        }
    }

    /// Returns the files to be read now.
    pub(super) fn due(&self, now: Instant) -> Vec<PendingRead> {
        let due = self.entries.iter().filter(|(_, entry)| entry.read_at.or(entry.missing).is_some_and(|at| at <= now));
        due.map(|(name, entry)| PendingRead { name: name.clone(), generation: entry.generation }).collect()
    }

    /// Returns the time at which a file is due, or a problem must be reported.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let times = self.entries.values().flat_map(|entry| {
            let reported = entry.problem.as_ref().map(|(_, since)| *since + self.quiet);
            let long = entry.writing.map(|since| since + LONG);
            let later = [reported, long].map(|at| at.filter(|at| *at > now));
            [entry.read_at.or(entry.missing), later[0], later[1]]
        });
        times.flatten().min()
    }

    /// Records the result of a read. The result counts only if the file has not changed since it was due.
    pub(super) fn read(&mut self, due: &PendingRead, outcome: ReadOutcome<T, P>, now: Instant) {
        let later = now + self.quiet;
        let Some(entry) = self.entries.get_mut(&due.name).filter(|entry| entry.generation == due.generation) else {
            return;
        };
        let (ident, good) = match outcome {
            // The next successful list shows the state of the file.
            ReadOutcome::Unknown => {
                (entry.read_at, entry.unproven, entry.missing, entry.known) = (None, None, None, true);
                return;
            }
            ReadOutcome::Absent if entry.missing.is_none_or(|at| at > now) => {
                (entry.read_at, entry.unproven, entry.missing) = (None, None, Some(later));
                return;
            }
            ReadOutcome::Absent | ReadOutcome::Directory => {
                self.entries.remove(&due.name);
                return;
            }
            ReadOutcome::Good(ident, good) => (Some(ident), Ok(good)),
            ReadOutcome::Bad(ident, problem) => (ident, Err(problem)),
        };
        entry.missing = None;
        if let (Some(unproven), Some(ident)) = (entry.unproven, ident)
            && unproven != ident
        {
            entry.rest(ident, later);
            return;
        }
        (entry.unproven, entry.read_at, entry.seen, entry.known) = (None, None, ident, true);
        match good {
            Ok(good) => (entry.good, entry.problem) = (Some(good), None),
            Err(problem) => match &entry.problem {
                Some((old, _)) if *old == problem => {}
                _ => entry.problem = Some((problem, now)),
            },
        }
    }

    /// Drops all other files, such as when the directory became a file.
    pub(super) fn retain(&mut self, names: impl Fn(&OsStr) -> bool) {
        self.entries.retain(|name, _| names(name));
    }
}

fn is_manifest(name: &OsStr) -> bool {
    let extension = std::path::Path::new(name).extension();
    extension.is_some_and(|extension| EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known)))
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
