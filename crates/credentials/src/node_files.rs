//! [`NodeFiles`]: possible paths of the node's docker configuration, and [`NodeConfigs`], which reads it on demand and again
//! as soon as a file has changed.
//!
//! The first file that can be read wins, as in the kubelet, or all of them count, as for podman; a file that cannot be read
//! is noted and skipped. It reads no environment variables: the directories are arguments. The keyring calls this.

use base::lock::{Mutex, MutexGuard};
use std::fs;
use std::hash::{Hash, Hasher};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::FileIdentity;
use tokio::time::Instant;

use crate::docker_config::{DockerConfig, Entry};
use crate::exec::Clock;
use crate::{Index, Note, PathMatch};

const CONFIG_JSON: &str = "config.json";
const LEGACY: &str = ".dockercfg";
const MAX_FILE: u64 = 16 << 20;

/// Two writes within one tick of the file system's clock leave the same time behind. Content that was read so soon after
/// it may have been written is read once more before it is believed.
const CLOCK_TICK: Duration = Duration::from_millis(20);

/// The directories in which the node's docker configuration is sought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFiles {
    /// Files, or directories that may have a `config.json`, which go before all others, the preferred first. A file of the
    /// name `.dockercfg` is read as such.
    pub paths: Vec<PathBuf>,
    /// Directories that may have a `config.json`, the preferred first.
    pub search: Vec<PathBuf>,
    /// Directories that may have a `.dockercfg`; searched when there is no usable `config.json`.
    pub legacy: Vec<PathBuf>,
    /// True if every file counts, in this order, and not only the first that can be read.
    pub every: bool,
}

impl NodeFiles {
    /// The kubelet's search paths: its own directory, the working directory, the home directory, the root directory.
    #[must_use]
    pub fn standard(preferred: &Path, working: &Path, home: Option<&Path>) -> Self {
        let dirs = |below: &str| {
            let home = home.map(|home| home.join(below));
            let root = Path::new("/").join(below);
            [Some(preferred.to_owned()), Some(working.to_owned()), home, Some(root)].into_iter().flatten().collect()
        };
        Self { search: dirs(".docker"), legacy: dirs(""), ..Self::default() }
    }
}

/// Content of the node's files.
#[derive(Default)]
pub(crate) struct NodeConfig {
    /// The files that count, the preferred first.
    pub(crate) files: Vec<NodeFile>,
    pub(crate) notes: Vec<Note>,
    /// Counts the changes of the files.
    pub(crate) generation: u64,
    /// Of the files up to the one that was used, in the order of the search.
    stamps: Vec<Option<FileIdentity>>,
}

/// Content of one file.
pub(crate) struct NodeFile {
    pub(crate) path: PathBuf,
    pub(crate) index: Index<Entry>,
    /// The helper of a location; an empty name is for none.
    pub(crate) helpers: Index<String>,
    /// The helper of all others.
    pub(crate) store: Option<String>,
}

/// A possible path of a file.
#[derive(Clone, Debug)]
struct FilePath {
    path: PathBuf,
    is_legacy: bool,
}

/// Reads the node's files and caches their content.
pub(crate) struct NodeConfigs {
    files: Arc<[FilePath]>,
    every: bool,
    mode: PathMatch,
    lifetime: Duration,
    clock: Clock,
    current: Mutex<Option<Current>>,
}

#[derive(Clone)]
struct Current {
    config: Arc<NodeConfig>,
    read: Instant,
    /// True if the files were read late enough after these stamps were first seen that the stamps cannot hide a change.
    settled: bool,
}

/// Returns the state of a file. Makes a single system call, which is quick enough for an async worker. An error counts as no
/// file: reading the file reports it.
fn identity(path: &Path) -> Option<FileIdentity> {
    // The stamps of a directory do not show a change of a file.
    let metadata = fs::metadata(path).ok().filter(|metadata| !metadata.is_dir())?;
    Some(FileIdentity::from(&metadata))
}

impl NodeConfigs {
    pub(crate) fn new(files: &NodeFiles, mode: PathMatch, lifetime: Duration, clock: Clock) -> Self {
        let json = |path: PathBuf| FilePath { is_legacy: path.file_name().is_some_and(|name| name == LEGACY), path };
        let either = files.paths.iter().flat_map(|path| [json(path.clone()), json(path.join(CONFIG_JSON))]);
        let search = files.search.iter().map(|dir| json(dir.join(CONFIG_JSON)));
        let legacy = files.legacy.iter().map(|dir| json(dir.join(LEGACY)));
        let mut all: Vec<FilePath> = Vec::new();
        for file in either.chain(search).chain(legacy) {
            if !all.iter().any(|other| other.path == file.path) {
                all.push(file);
            }
        }
        Self { files: all.into(), every: files.every, mode, lifetime, clock, current: Mutex::default() }
    }

    /// Returns the present content of the files.
    pub(crate) async fn get(&self) -> Arc<NodeConfig> {
        let now = (self.clock)();
        let known = self.current().clone();
        if let Some(known) = &known
            && known.settled
            && now.duration_since(known.read) < self.lifetime
            && self.unchanged(&known.config).await
        {
            return known.config.clone();
        }
        let (files, mode, every) = (self.files.clone(), self.mode, self.every);
        let mut config = if files.is_empty() {
            NodeConfig::default()
        } else {
            let read = tokio::task::spawn_blocking(move || read(&files, mode, every));
            read.await.unwrap_or_else(|error| {
                let mut none = NodeConfig::default();
                none.notes.push(Note::new(format!("the node's docker configuration was not read: {error}")));
                none
            })
        };
        let same = known.as_ref().filter(|known| known.config.stamps == config.stamps);
        let absent = config.stamps.len() == self.files.len() && config.stamps.iter().all(Option::is_none);
        config.generation = match same {
            Some(same) => same.config.generation,
            None => known.as_ref().map_or(0, |known| known.config.generation + 1),
        };
        let settled = absent || same.is_some_and(|known| known.settled || now.duration_since(known.read) >= CLOCK_TICK);
        let config = Arc::new(config);
        // Until it is settled, the time counts from the first read.
        let read = same.filter(|known| !known.settled && !settled).map_or(now, |known| known.read);
        *self.current() = Some(Current { config: config.clone(), read, settled });
        config
    }

    /// Adds the state of the files to a fingerprint. Blocks.
    pub(crate) fn fingerprint(&self, hasher: &mut impl Hasher) {
        for file in self.files.iter() {
            identity(&file.path).hash(hasher);
        }
    }

    /// Returns true if a file is configured.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Runs on a blocking thread, because a directory may be on a file system that does not respond.
    async fn unchanged(&self, config: &Arc<NodeConfig>) -> bool {
        if self.is_empty() {
            return true;
        }
        let (files, config) = (Arc::clone(&self.files), Arc::clone(config));
        let same = move || files.iter().zip(&config.stamps).all(|(file, stamp)| identity(&file.path) == *stamp);
        tokio::task::spawn_blocking(same).await.unwrap_or(false)
    }

    /// Guards what was read last; never held while a file is read.
    fn current(&self) -> MutexGuard<'_, Option<Current>> {
        self.current.lock()
    }
}

impl NodeFile {
    fn of(path: &Path, config: DockerConfig, mode: PathMatch, notes: &mut Vec<Note>) -> Self {
        let (mut index, mut helpers) = (Index::new(mode), Index::new(mode));
        for (at, (location, entry)) in config.auths.into_iter().enumerate() {
            // An entry without a credential means that a helper has it.
            if !entry.auth.is_anonymous()
                && let Err(error) = index.insert(&location, entry)
            {
                let text = format!("entry {} of file {} is ignored: {error}", at + 1, path.display());
                notes.push(Note::new(text));
            }
        }
        for (at, (location, helper)) in config.helpers.into_iter().enumerate() {
            if let Err(error) = helpers.insert(&location, helper) {
                let text = format!("credHelpers entry {} of file {} is ignored: {error}", at + 1, path.display());
                notes.push(Note::new(text));
            }
        }
        Self { path: path.to_owned(), index, helpers, store: config.store }
    }
}

fn read(files: &[FilePath], mode: PathMatch, every: bool) -> NodeConfig {
    let mut config = NodeConfig::default();
    for FilePath { path, is_legacy } in files {
        // The stamp first: what changes while the file is read shows as a change the next time.
        config.stamps.push(identity(path));
        let text = match read_file(path) {
            Ok(text) => text,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => continue,
            // A directory where a file or a directory may be; the file in it is the next of the list.
            Err(error)
                if error.kind() == io::ErrorKind::IsADirectory && path.file_name() != Some(CONFIG_JSON.as_ref()) =>
            {
                continue;
            }
            // A directory of another user, for example /run/containers as an ordinary user: it has no file of this user.
            Err(_) if every && fs::metadata(path).is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied) => {
                continue;
            }
            Err(error) => {
                config.notes.push(Note::new(format!("file {} is skipped: {error}", path.display())));
                continue;
            }
        };
        match if *is_legacy { DockerConfig::parse_legacy(&text) } else { DockerConfig::parse(&text) } {
            Ok(parsed) => {
                config.files.push(NodeFile::of(path, parsed, mode, &mut config.notes));
                if !every {
                    break;
                }
            }
            Err(error) => config.notes.push(Note::new(format!("file {} is skipped: {error}", path.display()))),
        }
    }
    config
}

/// Returns the text of a file, wiped on drop.
fn read_file(path: &Path) -> io::Result<zeroize::Zeroizing<Vec<u8>>> {
    // Inspect the file before it is opened: opening a pipe would wait for its other end.
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        let kind = if metadata.is_dir() { io::ErrorKind::IsADirectory } else { io::ErrorKind::Other };
        return Err(io::Error::new(kind, "it is not a regular file"));
    }
    if metadata.len() > MAX_FILE {
        return Err(io::Error::other(format!("it is larger than {MAX_FILE} bytes")));
    }
    let room = usize::try_from(metadata.len()).unwrap_or_default() + 1;
    let mut text = zeroize::Zeroizing::new(Vec::with_capacity(room));
    fs::File::open(path)?.take(MAX_FILE).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
#[path = "node_files_tests.rs"]
mod tests;
