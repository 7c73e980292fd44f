//! A directory of manifests, or a file: watched through the kernel, and listed periodically as well. Reads the files
//! that [`DirectoryFiles`] schedules, and reports their contents. The path may appear, be replaced or be a link; while
//! it is absent or cannot be read, its last content stays in force. Which content counts is decided in
//! [`super::files`], its meaning in [`super::manifest`].

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::inotify::ReadFlags;
use tokio::time::Instant;

use super::disk::{self, FileContent, Listing, Watches};
use super::files::{Change, DirectoryFiles, PendingRead, ReadOutcome};
use super::inotify::{Inotify, Notice};
use super::manifest::{ExpectedObjects, ManifestContent, ManifestProblem, ManifestReader};
use super::options::SourceOptions;
use super::view::{SourceManifest, SourceView};
use crate::identity::Origin;

/// Interval of checks of a path without a parent directory.
const RETRY: Duration = Duration::from_secs(1);

/// Says whether a path has to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// A setting names it: its absence is a problem, and its pods are unknown until it can be read.
    Required,
    /// No setting names it: it may be absent for ever.
    Optional,
}

struct WatchedDirectory<'a> {
    path: PathBuf,
    presence: Presence,
    reader: ManifestReader,
    options: &'a SourceOptions,
    inotify: Option<Inotify>,
    watches: Watches,
    /// True if the path is a directory; otherwise it is, or was, a single file.
    is_directory: bool,
    files: DirectoryFiles<ManifestContent, ManifestProblem>,
    /// Time at which the next list is due.
    list_at: Instant,
    /// True if links may have got other targets.
    switched: bool,
    listed: bool,
    /// True if the last list failed.
    unread: bool,
    /// The device of the directory in which files were seen last.
    device: Option<u64>,
    problem: Option<ManifestProblem>,
    /// Modes of files with Secrets that every user can read, once a warning was logged.
    warned: BTreeMap<OsString, u32>,
}

/// Reads the manifests at `path`, for ever, and reports them.
pub(super) async fn run(
    path: &Path,
    presence: Presence,
    expected: ExpectedObjects,
    options: &SourceOptions,
    publish: &(dyn Fn(SourceView) + Sync),
) {
    let inotify = Inotify::new().map_err(|error| {
        tracing::warn!(path = %path.display(), %error, duration = ?options.file_check, "cannot watch the path, listing it");
    });
    let mut directory = WatchedDirectory {
        path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
        presence,
        reader: ManifestReader { options: options.clone(), expected, may_be_empty: false },
        options,
        inotify: inotify.ok(),
        watches: Watches::default(),
        is_directory: true,
        files: DirectoryFiles::new(options.quiet),
        list_at: Instant::now(),
        switched: false,
        listed: false,
        unread: false,
        device: None,
        problem: None,
        warned: BTreeMap::new(),
    };
    loop {
        directory.step().await;
        publish(directory.view());
        directory.wait().await;
    }
}

impl WatchedDirectory<'_> {
    /// Lists if a list is due, and reads all files that are due.
    async fn step(&mut self) {
        if self.list_at <= Instant::now() {
            self.list().await;
        }
        loop {
            let due = self.files.due(Instant::now());
            if due.is_empty() {
                return;
            }
            let read = self.read(due).await;
            // An event during the read invalidates its result.
            self.take_pending_notices();
            let now = Instant::now();
            for (due, outcome) in read {
                if matches!(outcome, ReadOutcome::Unknown) {
                    self.list_at = now;
                }
                self.files.read(&due, outcome, now);
            }
        }
    }

    async fn list(&mut self) {
        let (path, watcher) = (self.path.clone(), self.inotify.as_ref().map(Inotify::watcher));
        let (before, clock) = (self.watches, Arc::clone(&self.options.wall_clock));
        let listing = tokio::task::spawn_blocking(move || disk::list(&path, watcher.as_ref(), before, clock())).await;
        let switched = std::mem::take(&mut self.switched);
        self.list_at = Instant::now() + self.options.file_check;
        let Ok(Listing { watches, is_directory, device, files }) = listing else {
            self.unread = true;
            self.problem = Some(ManifestProblem::passing("the reader panicked"));
            return;
        };
        self.watches = watches;
        let now = Instant::now();
        if self.inotify.is_none() || (watches.own.is_none() && watches.parent.is_none()) {
            self.list_at = self.list_at.min(now + RETRY.max(self.options.quiet).min(self.options.file_check));
        }
        if let Some(is_directory) = is_directory
            && is_directory != self.is_directory
        {
            self.is_directory = is_directory;
            self.files.retain(|name| name.is_empty() != is_directory);
        }
        // An empty directory on another device is a mount point whose file system is not mounted.
        let unmounted = |files: &BTreeMap<_, _>| {
            files.is_empty() && !self.files.is_empty() && self.device.is_some_and(|before| device != Some(before))
        };
        let problem = match &files {
            Ok(files) if unmounted(files) => Some("the file system of its files is not mounted".to_owned()),
            Ok(_) => None,
            Err(error) => Some(format!("it cannot be listed: {error}")),
        };
        self.unread = problem.is_some();
        match (problem, files) {
            (None, Ok(files)) => {
                self.files.listed(&files, switched, now);
                (self.listed, self.problem, self.device) = (true, None, device);
            }
            // No file of an earlier list is missing.
            (Some(_), Err(error)) if self.may_be_absent() && error.kind() == io::ErrorKind::NotFound => {
                (self.listed, self.problem) = (true, None);
            }
            (problem, _) => self.problem = problem.map(ManifestProblem::passing),
        }
        self.files.retry(|problem| problem.passing, now);
        // After the listing: events that arrived while it was made are handled in their order, and the last one gives
        // the present state.
        self.take_pending_notices();
    }

    /// Returns true if the path need not exist and nothing was read from it.
    fn may_be_absent(&self) -> bool {
        self.presence == Presence::Optional && self.files.is_empty()
    }

    /// Reads files on a thread that may block.
    async fn read(
        &mut self,
        due: Vec<PendingRead>,
    ) -> Vec<(PendingRead, ReadOutcome<ManifestContent, ManifestProblem>)> {
        let files: Vec<_> = due
            .into_iter()
            .map(|due| (disk::path_of(&self.path, &due.name), self.files.good(&due.name), due))
            .collect();
        let reader = self.reader.clone();
        let names: Vec<PendingRead> = files.iter().map(|(.., due)| due.clone()).collect();
        let (directory, device) = (self.is_directory.then(|| self.path.clone()), self.device);
        let read = tokio::task::spawn_blocking(move || {
            let read = |(path, good, due): (PathBuf, Option<Arc<ManifestContent>>, PendingRead)| {
                let (outcome, open) = read_one(&reader, &path, good.as_ref());
                (due, outcome, open)
            };
            let mut read: Vec<_> = files.into_iter().map(read).collect();
            // A single file that is absent, or a file of an absent directory, is not known to be removed.
            if !directory.is_some_and(|directory| disk::absence_is_certain(&directory, device)) {
                for (_, outcome, _) in &mut read {
                    if matches!(outcome, ReadOutcome::Absent) {
                        *outcome = ReadOutcome::Unknown;
                    }
                }
            }
            read
        });
        let Ok(read) = read.await else {
            let bad = |due| (due, ReadOutcome::Bad(None, ManifestProblem::passing("the reader panicked")));
            return names.into_iter().map(bad).collect();
        };
        let checked = |(due, outcome, open): (PendingRead, _, Option<u32>)| {
            self.warn_if_open(&due.name, open);
            (due, outcome)
        };
        read.into_iter().map(checked).collect()
    }

    /// Logs a warning once for each file and mode.
    fn warn_if_open(&mut self, name: &OsStr, mode: Option<u32>) {
        match mode {
            None => {
                self.warned.remove(name);
            }
            Some(mode) if self.warned.insert(name.to_owned(), mode) == Some(mode) => {}
            Some(mode) => {
                let (path, mode) = (disk::path_of(&self.path, name), format!("{mode:04o}"));
                tracing::warn!(path = %path.display(), mode, "every user can read a file with a Secret");
            }
        }
    }

    /// Handles the events that the kernel has queued up to now.
    fn take_pending_notices(&mut self) {
        let take_notices = self.inotify.as_ref().map(Inotify::drain);
        match take_notices {
            None => {}
            Some(Ok(notices)) => self.take_notices(notices),
            Some(Err(error)) => self.stop_watching(&error),
        }
    }

    fn stop_watching(&mut self, error: &std::io::Error) {
        tracing::warn!(path = %self.path.display(), %error, "cannot watch the path any more, listing it");
        self.inotify = None;
        self.watches = Watches::default();
        let now = Instant::now();
        self.files.distrust(now);
        self.list_at = now;
    }

    fn take_notices(&mut self, notices: Vec<Notice>) {
        let now = Instant::now();
        for notice in notices {
            if notice.flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                tracing::debug!(path = %self.path.display(), "events were lost, listing the path");
                self.files.distrust(now);
                self.list_at = now;
                continue;
            }
            let watch = Some(notice.watch);
            if self.is_directory && watch == self.watches.own {
                self.content_changed(&notice, now);
            }
            if watch == self.watches.parent && notice.name.as_deref() == self.path.file_name() {
                self.path_changed(notice.flags, now);
            }
        }
    }

    /// Handles a notice about the directory or a file in it.
    fn content_changed(&mut self, notice: &Notice, now: Instant) {
        let Some(name) = notice.name.as_deref() else {
            // The path was removed or moved, or its watch has ended.
            self.list_at = now;
            return;
        };
        let moved = notice
            .flags
            .intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO | ReadFlags::MOVED_FROM | ReadFlags::DELETE);
        if notice.flags.contains(ReadFlags::ISDIR) {
            return;
        }
        if disk::is_hidden(name) {
            // Files may be links through this hidden name.
            if moved && !is_swap(name) {
                (self.switched, self.list_at) = (true, now);
            }
            return;
        }
        for change in changes(notice.flags) {
            self.files.happened(name, change, now);
        }
    }

    /// Handles a notice about the path itself, in the directory above.
    fn path_changed(&mut self, flags: ReadFlags, now: Instant) {
        if self.is_directory || flags.contains(ReadFlags::ISDIR) {
            if flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO | ReadFlags::MOVED_FROM | ReadFlags::DELETE) {
                (self.switched, self.list_at) = (true, now);
            }
            return;
        }
        for change in changes(flags) {
            self.files.happened(OsStr::new(""), change, now);
        }
        if flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            self.list_at = now;
        }
    }

    /// Waits until there may be something to do.
    async fn wait(&mut self) {
        let now = Instant::now();
        let at = self.files.next(now).map_or(self.list_at, |next| next.min(self.list_at));
        let take_notices = match &self.inotify {
            Some(inotify) => tokio::select! {
                biased;
                take_notices = inotify.next() => take_notices,
                () = tokio::time::sleep_until(at) => return,
            },
            None => return tokio::time::sleep_until(at).await,
        };
        match take_notices {
            Ok(notices) => self.take_notices(notices),
            Err(error) => self.stop_watching(&error),
        }
    }

    fn view(&self) -> SourceView {
        let now = Instant::now();
        let manifests = self.files.iter().map(|(name, entry)| {
            let long = || {
                entry.is_written_long(now).then(|| ManifestProblem::new("it is being written and was not closed yet"))
            };
            SourceManifest {
                origin: disk::path_of(&self.path, name).display().to_string(),
                since: entry.since,
                content: entry.good.clone(),
                held: entry.is_held(),
                problem: entry.problem(now, self.options.quiet).cloned().or_else(long),
            }
        });
        SourceView {
            ready: self.listed && self.files.is_known(),
            unread: self.unread.then(|| self.path.display().to_string()),
            is_cluster: false,
            problem: self.problem.clone().map(|problem| (self.path.display().to_string(), problem)),
            manifests: manifests.collect(),
        }
    }
}

/// Changes that a notice stands for, in the order in which they count.
fn changes(flags: ReadFlags) -> impl Iterator<Item = Change> {
    let table = [
        (ReadFlags::CREATE, Change::Created),
        (ReadFlags::MODIFY, Change::Modified),
        (ReadFlags::CLOSE_WRITE, Change::Closed),
        (ReadFlags::MOVED_TO, Change::MovedIn),
        (ReadFlags::ATTRIB, Change::Attributes),
        (ReadFlags::MOVED_FROM, Change::Removed),
        (ReadFlags::DELETE, Change::Removed),
    ];
    table.into_iter().filter(move |(flag, _)| flags.contains(*flag)).map(|(_, change)| change)
}

/// Returns true for the swap files of editors, to which no file is a link.
fn is_swap(name: &OsStr) -> bool {
    let extension = Path::new(name).extension().and_then(OsStr::to_str);
    extension.is_some_and(|extension| matches!(extension, "swp" | "swx" | "swo"))
}

/// Reads a file. Returns its mode as well if it holds a Secret and is readable by every user.
fn read_one(
    reader: &ManifestReader,
    path: &Path,
    good: Option<&Arc<ManifestContent>>,
) -> (ReadOutcome<ManifestContent, ManifestProblem>, Option<u32>) {
    let (ident, bytes, open) = match disk::read(path) {
        FileContent::Read(ident, bytes, open) => (ident, bytes, open),
        FileContent::Unusable(ident, reason) => {
            return (ReadOutcome::Bad(ident, ManifestProblem::passing(reason)), None);
        }
        FileContent::Absent => return (ReadOutcome::Absent, None),
        FileContent::Directory => return (ReadOutcome::Directory, None),
    };
    let Some(text) = path.to_str() else {
        return (ReadOutcome::Bad(Some(ident), ManifestProblem::new("its name is not UTF-8 text")), None);
    };
    match reader.read(Origin::File(text), text, &bytes, good) {
        Ok(content) => {
            let open = open.filter(|_| content.has_secrets() && disk::is_open(path));
            (ReadOutcome::Good(ident, content), open)
        }
        Err(problem) => (ReadOutcome::Bad(Some(ident), problem), None),
    }
}
