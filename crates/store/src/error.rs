//! The errors of the store, one enum per operation where callers act differently. [`StoreError::is_disk_full`] detects a full
//! disk. Callers convert the errors at their own border, so that each is worded for end users once.

use std::io;
use std::path::{Path, PathBuf};

use oci::Digest;

use crate::disk::SyncError;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another handle of this one, has it open.
    #[error("store {} is in use{}", root.display(), holder(*pid, command.as_deref(), socket.as_deref()))]
    Held {
        /// The root of the store.
        root: PathBuf,
        /// The process that holds it; absent while that process has not yet written it down.
        pid: Option<u32>,
        /// The command of that process, for people.
        command: Option<String>,
        /// A digest of the settings by which it pulls.
        settings: Option<String>,
        /// The socket on which the holder answers, where it has one.
        socket: Option<PathBuf>,
    },
    /// A newer program wrote this store.
    #[error(
        "store {} has version {found}, and this program knows versions up to {supported}: use a newer program, or another root",
        root.display()
    )]
    NewerVersion {
        /// The root of the store.
        root: PathBuf,
        /// Version on disk.
        found: u32,
        /// Newest version that this program knows.
        supported: u32,
    },
    /// The root is a file.
    #[error("store root {} is not a directory", root.display())]
    NotADirectory {
        /// The root, as it was given.
        root: PathBuf,
    },
    /// The root is a directory with other things in it, which a new store would hide or delete.
    #[error("{} is neither empty nor a store: it has {found:?} in it", root.display())]
    NotAStore {
        /// The root of the store.
        root: PathBuf,
        /// The first foreign entry.
        found: String,
    },
    /// The root belongs to another user, who could change its content.
    #[error("store root {} belongs to user {owner}, not to user {user} who runs this program", root.display())]
    NotOwned {
        /// The root of the store.
        root: PathBuf,
        /// Id of the user who owns the root.
        owner: u32,
        /// Effective user of this process.
        user: u32,
    },
    /// The file system lacks something that a store needs.
    #[error("no store can be in {} on the file system {kind}: {what}", root.display())]
    Lacks {
        /// The root of the store.
        root: PathBuf,
        /// Name of the file system.
        kind: String,
        /// The missing feature.
        what: String,
    },
    /// The records were taken away.
    #[error(
        "store {} has layers, but its database meta.redb is missing or empty: restore it, or remove everything in {} and pull \
         all images again",
        root.display(), root.display()
    )]
    NoRecords {
        /// The root of the store.
        root: PathBuf,
    },
    /// The database is not what was written.
    #[error(
        "the database {} is damaged: restore it from a copy, or remove everything in the store's root and pull all images \
         again",
        path.display()
    )]
    Damaged {
        /// The file of the database.
        path: PathBuf,
        /// The error of the database.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The disk refused something.
    #[error("{operation} {}", path.display())]
    Io {
        /// The operation, in words.
        operation: &'static str,
        /// The file or directory that it was for.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The database could not be opened or read, or its records do not make sense.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn holder(pid: Option<u32>, command: Option<&str>, socket: Option<&Path>) -> String {
    let Some(pid) = pid else { return " by another process".to_owned() };
    let command = command.map(|command| format!(" ({command})")).unwrap_or_default();
    match socket {
        Some(socket) => format!(" by process {pid}{command}, which answers on {}", socket.display()),
        None => format!(" by process {pid}{command}"),
    }
}

/// An error of an operation on an open store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk refused something.
    #[error("{operation} {}", path.display())]
    Io {
        /// The operation, in words.
        operation: &'static str,
        /// The file or directory that it was for.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The database refused something.
    #[error("use the store's database")]
    Database(#[source] Box<redb::Error>),
    /// The database refused the very end of a change, which may have been made or not. Repeating the operation settles it.
    #[error("write the store's database, in which the change may be or not")]
    Unsure(#[source] Box<redb::Error>),
    /// A record in the database cannot be read, or refers to a missing one.
    #[error("the store's database is damaged: {0}")]
    Corrupt(String),
    /// The root, the lock or the database was moved, replaced or deleted, or something was mounted over them.
    #[error("nothing can be changed: {0}; the process has to be started again")]
    Displaced(String),
    /// No such image.
    #[error("no image {0}")]
    NotFound(Digest),
    /// The image, or a layer that only it has, is mounted.
    #[error("image {id} is mounted on {}: unmount it first", target.display())]
    InUse {
        /// Id of the image.
        id: Digest,
        /// Mount point that has it.
        target: PathBuf,
    },
    /// A container of podman shows the image, or a layer that only it has; or an image of podman was built on it.
    #[error("image {id} is used by podman or CRI-O ({}): remove its containers, and images that were built on it, first", place.display())]
    InUseByPodman {
        /// Id of the image.
        id: Digest,
        /// The directory of podman that names it.
        place: PathBuf,
    },
    /// Containers cannot be kept from being made for as long as a removal takes.
    #[error("podman reads {} all the time: try again", view.display())]
    ViewBusy {
        /// The directory of the additional image store.
        view: PathBuf,
    },
    /// A name of a kind that the operation does not accept.
    #[error("image name {name:?} {why}")]
    UnsuitableName {
        /// The name, in normal form.
        name: String,
        /// The kind of name that fits.
        why: &'static str,
    },
    /// A layer could not be unpacked once more from what the store has of it.
    #[error("copy layer {diff_id}")]
    Copy {
        /// The layer.
        diff_id: Digest,
        /// Why it could not be unpacked.
        source: crate::unpack::UnpackError,
    },
    /// The tar stream of a layer could not be built again.
    #[error("write the tar stream of layer {diff_id}")]
    Export {
        /// The layer.
        diff_id: Digest,
        /// Why the stream could not be built.
        source: crate::recipe::RecipeError,
    },
}

macro_rules! from_redb {
    ($($kind:ty),*) => {$(
        impl From<$kind> for StoreError {
            fn from(error: $kind) -> Self {
                Self::Database(Box::new(error.into()))
            }
        }
    )*};
}
from_redb!(redb::TableError, redb::StorageError, redb::TransactionError, redb::CommitError, redb::DatabaseError);

impl From<SyncError> for StoreError {
    fn from(SyncError { path, source }: SyncError) -> Self {
        Self::Io { operation: "sync the file system of", path, source }
    }
}

impl OpenError {
    pub(crate) fn io(operation: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { operation, path: path.to_owned(), source: source.into() }
    }

    /// Why the database cannot be opened.
    pub(crate) fn of_database(path: &Path, error: StoreError) -> Self {
        match error {
            StoreError::Database(error) => match *error {
                redb::Error::Io(source) if source.kind() != io::ErrorKind::UnexpectedEof => {
                    Self::io("open the database", path, source)
                }
                error => Self::Damaged { path: path.to_owned(), source: error.into() },
            },
            StoreError::Corrupt(what) => Self::Damaged { path: path.to_owned(), source: what.into() },
            error => error.into(),
        }
    }
}

impl StoreError {
    pub(crate) fn io(operation: &'static str, path: impl Into<PathBuf>, source: impl Into<io::Error>) -> Self {
        Self::Io { operation, path: path.into(), source: source.into() }
    }

    /// Converts the error for a second report, with its causes in its text.
    pub(crate) fn as_io(&self) -> io::Error {
        let kind = match self {
            Self::Io { source, .. } => source.kind(),
            _ => io::ErrorKind::Other,
        };
        let mut text = self.to_string();
        let mut next = std::error::Error::source(self);
        while let Some(source) = next {
            text = format!("{text}: {source}");
            next = source.source();
        }
        io::Error::new(kind, text)
    }

    /// Returns true if the disk is full, or the user's share of it.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        let source = match self {
            Self::Io { source, .. } => source,
            Self::Database(source) | Self::Unsure(source) => match source.as_ref() {
                redb::Error::Io(source) => source,
                _ => return false,
            },
            Self::Copy { source: crate::unpack::UnpackError::Io { source, .. }, .. } => source,
            Self::Export { source: crate::recipe::RecipeError::Read { source, .. }, .. } => source,
            _ => return false,
        };
        base::is_disk_full(source)
    }
}

/// Why an image was not committed. The store is as it was before; only after [`StoreError::Unsure`] it may have all of the image.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// A layer whose directories depend on the layers below it was meanwhile committed on top of other layers, or has been
    /// removed: unpack it once more and try again.
    #[error("layer {diff_id} was taken by another image: it must be unpacked again")]
    LayerTaken {
        /// The layer.
        diff_id: Digest,
        /// The stack for which it is needed.
        chain_id: Digest,
    },
    /// The layers that were handed in are not those of the config.
    #[error("the config of image {id} has {expected} layers, and does not fit the {got} that were unpacked")]
    LayersMismatch {
        /// Id of the image: digest of the config.
        id: Digest,
        /// Number of layers in the config.
        expected: usize,
        /// Number of layers handed in.
        got: usize,
    },
    /// The config is not one.
    #[error("image {id}")]
    Config {
        /// Digest of the bytes.
        id: Digest,
        /// The fault in them.
        source: oci::ConfigError,
    },
    /// A name with a digest that is none of the image's.
    #[error("image name {name:?} has another digest than the image, which has {}", all(digests))]
    ForeignDigest {
        /// The name as it was given.
        name: String,
        /// The digests of the image's manifest and of the indexes that lead to it.
        digests: Vec<Digest>,
    },
    /// An index that does not list the next document, or a manifest of another config.
    #[error("document {document} does not refer to {to}")]
    Unrelated {
        /// Digest of the index or the manifest.
        document: Digest,
        /// Digest of what it was to lead to.
        to: Digest,
    },
    /// Disk, database or a name.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn all(digests: &[Digest]) -> String {
    digests.iter().map(Digest::to_string).collect::<Vec<_>>().join(" and ")
}

impl CommitError {
    /// Returns true if the image may be there all the same.
    pub(crate) fn is_unsure(&self) -> bool {
        matches!(self, Self::Store(StoreError::Unsure(_)))
    }

    /// Returns true if the disk is full.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_disk_full())
    }
}

/// Why a text could not be resolved to an image, or to none.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// Nothing was given.
    #[error("no image was named")]
    Empty,
    /// The beginning of several ids.
    #[error("image id {prefix:?} is ambiguous: {}", join(ids))]
    Ambiguous {
        /// The digits that were given.
        prefix: String,
        /// The ids that begin so.
        ids: Vec<Digest>,
    },
    /// The database could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn join(ids: &[Digest]) -> String {
    let shown: Vec<&str> = ids.iter().take(8).map(Digest::short).collect();
    let more = ids.len().saturating_sub(shown.len());
    if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
}
