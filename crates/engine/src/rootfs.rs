//! [`RootFs`]: the files of an image, read from its layers without a mount. All work that blocks runs on a thread that may.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base::lock::Mutex;
use cri_api::engine::LayerLease;
use oci::Digest;
use store::view::{Kind, Node, Stat, View, ViewError};

use crate::error::{Error, ErrorKind, Result};

/// The largest file that [`RootFs::read`] returns. [`RootFs::copy_to`] has no limit.
pub const READ_LIMIT: u64 = 64 << 20;

/// The root file system of an image: its layers, merged as overlayfs merges them. Paths are those within the image, with or without the
/// first slash. Symbolic links never lead out of the image. Clones share the layers.
#[derive(Clone, Debug)]
pub struct RootFs {
    image: Digest,
    tree: Arc<Tree>,
}

/// The view before the lease: the layers are closed when the lease ends.
#[derive(Debug)]
struct Tree {
    view: View,
    _lease: Mutex<LayerLease>,
}

/// Attributes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata {
    /// The kind of the file.
    pub kind: Kind,
    /// Permission bits with set-user-id, set-group-id and sticky.
    pub mode: u32,
    /// Owner in the image.
    pub uid: u32,
    /// Group in the image.
    pub gid: u32,
    /// Bytes of a file, or of the target of a symbolic link.
    pub size: u64,
    /// Time of the last change.
    pub modified: SystemTime,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirEntry {
    /// The name within the directory.
    pub name: OsString,
    /// The attributes. A symbolic link is not followed.
    pub metadata: Metadata,
}

impl RootFs {
    pub(crate) async fn open(image: Digest, lease: LayerLease) -> Result<Self> {
        let of_image = image.clone();
        let open = move || match View::of_lease(&lease) {
            Ok(view) => Ok(Tree { view, _lease: Mutex::new(lease) }),
            Err(error) => Err(Error::of_view(&of_image, &error)),
        };
        Ok(Self { image, tree: Arc::new(blocking(open).await?) })
    }

    /// Returns the content of a file of at most [`READ_LIMIT`] bytes.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::InvalidArgument`] if it is a directory or too large; a layer cannot be read.
    pub async fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        self.with_file(path.as_ref(), |size| size <= READ_LIMIT, Vec::new()).await
    }

    /// Writes the content of a file to `writer`, and returns the writer. It is not flushed.
    ///
    /// # Errors
    /// As [`RootFs::read`]; `writer` reports an error.
    pub async fn copy_to<W: io::Write + Send + 'static>(&self, path: impl AsRef<Path>, writer: W) -> Result<W> {
        self.with_file(path.as_ref(), |_| true, writer).await
    }

    /// Returns the attributes of a file. Symbolic links are followed.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; a layer cannot be read.
    pub async fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.with_node(path.as_ref(), true, |_, node| Ok(Metadata::of(node.stat()))).await
    }

    /// Returns the attributes of a file. If the file is a symbolic link, it is not followed.
    ///
    /// # Errors
    /// As [`RootFs::metadata`].
    pub async fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.with_node(path.as_ref(), false, |_, node| Ok(Metadata::of(node.stat()))).await
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::InvalidArgument`] if it is another kind of file; a layer cannot be read.
    pub async fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let target = self.with_node(path.as_ref(), false, View::target).await?;
        Ok(OsString::from_vec(target).into())
    }

    /// Returns the entries of a directory, sorted by the bytes of their names.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::InvalidArgument`] if it is not a directory; a layer cannot be read.
    pub async fn read_dir(&self, path: impl AsRef<Path>) -> Result<Vec<DirEntry>> {
        let entries = self.with_node(path.as_ref(), true, View::entries).await?;
        let entry = |node: &Node| DirEntry {
            name: OsString::from_vec(node.name().to_vec()),
            metadata: Metadata::of(node.stat()),
        };
        Ok(entries.iter().map(entry).collect())
    }

    /// Resolves a path, and calls `work` with the result on a thread that may block.
    async fn with_node<T: Send + 'static>(
        &self,
        path: &Path,
        follow: bool,
        work: impl FnOnce(&View, &Node) -> std::result::Result<T, ViewError> + Send + 'static,
    ) -> Result<T> {
        let (path, rootfs) = (path.as_os_str().as_bytes().to_vec(), self.clone());
        let read = move || {
            let view = &rootfs.tree.view;
            let result = view.resolve(&path, follow).and_then(|node| work(view, &node));
            result.map_err(|error| Error::of_view(&rootfs.image, &error))
        };
        blocking(read).await
    }

    async fn with_file<W: io::Write + Send + 'static>(
        &self,
        path: &Path,
        accepts: fn(u64) -> bool,
        mut writer: W,
    ) -> Result<W> {
        let (image, shown) = (self.image.clone(), path.display().to_string());
        let copied = self.with_node(path, true, move |view, node| {
            if !accepts(node.stat().size) {
                return Ok(Err(None));
            }
            Ok(view.file(node)?.write_to(&mut writer)?.map(|()| writer).map_err(Some))
        });
        copied.await?.map_err(|error| match error {
            None => {
                let message =
                    format!("read image {image}: {shown} has more than {READ_LIMIT} bytes: copy it to a writer");
                Error::new(ErrorKind::InvalidArgument, message)
            }
            Some(error) => Error::of_write(&format!("copy {shown} of image {image}"), &error),
        })
    }
}

impl Metadata {
    fn of(stat: &Stat) -> Self {
        let Stat { kind, mode, uid, gid, size, mtime: (seconds, nanoseconds), .. } = *stat;
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let second = if seconds < 0 {
            SystemTime::UNIX_EPOCH.checked_sub(whole)
        } else {
            SystemTime::UNIX_EPOCH.checked_add(whole)
        };
        let modified = second.and_then(|time| time.checked_add(Duration::from_nanos(nanoseconds.into())));
        // A time that this machine cannot express.
        let modified = modified.unwrap_or(SystemTime::UNIX_EPOCH);
        Self { kind, mode, uid, gid, size, modified }
    }
}

/// Runs blocking work, and waits for it.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let ended = || Error::new(ErrorKind::Cancelled, "the tokio runtime shuts down");
    base::blocking(work).await.unwrap_or_else(|| Err(ended()))
}
