//! Operations on layers that leave this store for another one: syncing them, and linking their files.

use crate::Lower;
use crate::disk::layer::Shape;
use crate::disk::layout;
use crate::disk::layout::EROFS_FILE;
use crate::error::StoreError;
use crate::store::Store;
use crate::unpack::link_tree;
use rustix::fs::{AtFlags, Mode, OFlags};
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

impl Store {
    /// Makes durable what was unpacked.
    ///
    /// # Errors
    /// The disk refused it: what was unpacked before is not to be had any more.
    pub fn make_durable(&self) -> Result<(), StoreError> {
        Ok(self.catalog.disk.sync_layers()?)
    }

    /// A mark of this moment for [`Store::is_synced_since`].
    #[must_use]
    pub fn sync_mark(&self) -> u64 {
        self.catalog.disk.flusher.mark()
    }

    /// Returns true if what was unpacked before the mark is durable without another sync: those that go on while layers are written
    /// have seen to it.
    #[must_use]
    pub fn is_synced_since(&self, mark: u64) -> bool {
        self.catalog.disk.flusher.is_synced_since(mark) && !self.catalog.disk.has_failed_to_write()
    }

    /// Returns the bytes that layers have written since the last sync, or `None` while a sync is running, or if the last one
    /// failed.
    #[must_use]
    pub fn unsynced_bytes(&self) -> Option<u64> {
        self.catalog.disk.flusher.unwritten()
    }

    /// Makes a second layer of the files of one that lies in another store on the same file system, without a copy, and has `place`
    /// move it away. Returns false if the file system makes no more links to one of the files.
    ///
    /// # Errors
    /// The disk refused something.
    pub fn link_layer(&self, from: &Lower, place: impl FnOnce(&Path) -> io::Result<()>) -> Result<bool, StoreError> {
        let layout = &self.catalog.disk.layout;
        let private = self.content.private();
        let failed = |source: io::Error| StoreError::io("link the files of", from.path(), source);
        rustix::fs::mkdirat(&layout.ingest, private.name().as_str(), Mode::RWXU).map_err(|e| failed(e.into()))?;
        let directory = layout::open_directory(&layout.ingest, &private.name()).map_err(failed)?;
        let (linked, shape) = match from {
            Lower::Directory(path) => {
                let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
                let tree = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| failed(e.into()))?;
                (link_tree(tree.as_fd(), directory.as_fd(), layout::FS), Shape::Dir)
            }
            Lower::Erofs(path) => {
                (rustix::fs::linkat(rustix::fs::CWD, path, &directory, EROFS_FILE, AtFlags::empty()), Shape::Erofs)
            }
        };
        match linked {
            Ok(()) => {}
            Err(rustix::io::Errno::MLINK | rustix::io::Errno::PERM | rustix::io::Errno::XDEV) => return Ok(false),
            Err(error) => return Err(failed(error.into())),
        }
        self.make_durable()?;
        let files = shape.lower(&layout.ingest_path(private.number));
        place(files.path()).map_err(|source| StoreError::io("move a layer from", files.path(), source))?;
        Ok(true)
    }
}
