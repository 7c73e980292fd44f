//! The youth of a store: from its creation until some content has to outlive a stop of the machine, nothing is synced, and a file
//! notes that. While that file exists, the store is only as good as the boot that made it: after another boot it is emptied. The
//! first commit of full durability ends the youth, and so does the settling of a store of relaxed durability.
//!
//! Knows no record. [`crate::store::open`] begins it, the database asks it whether to sync.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::disk::layout::{self, BLOBS, INGEST, LAYERS, Layout, c_name};
use crate::disk::remove_tree;
use crate::options::Durability;

/// Name of the file. Its text is the boot.
pub(crate) const FILE: &str = "young";

/// The age of a store, as an open finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    /// The store is no longer young, or not yet there.
    Grown,
    /// Made during this boot.
    Young,
    /// The machine has stopped since: the content may be torn.
    Torn,
}

#[derive(Debug)]
pub(crate) struct Youth {
    /// `None` where there is no store around the database.
    root: Option<OwnedFd>,
    durability: Durability,
    young: AtomicBool,
    /// The database is not synced.
    careless: AtomicBool,
}

impl Youth {
    /// Returns the age of the store in a root.
    pub(crate) fn find(root: &OwnedFd, boot: &str) -> io::Result<Age> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(root, FILE, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT) => return Ok(Age::Grown),
            Err(error) => return Err(error.into()),
        };
        let mut text = Vec::new();
        file.take(4096).read_to_end(&mut text)?;
        Ok(if text.trim_ascii() == boot.as_bytes() { Age::Young } else { Age::Torn })
    }

    /// Notes, so that it outlives a stop of the machine, that later writes are not durable.
    pub(crate) fn begin(root: &OwnedFd, boot: &str) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(root, FILE, flags, Mode::RUSR | Mode::WUSR)?);
        writeln!(file, "{boot}")?;
        file.sync_all()
    }

    /// The state of a store that is being opened.
    pub(crate) fn new(root: &OwnedFd, durability: Durability, young: bool) -> io::Result<Self> {
        let root = Some(root.try_clone()?);
        Ok(Self { root, durability, young: young.into(), careless: young.into() })
    }

    /// That of a database without a store.
    #[cfg(test)]
    pub(crate) fn over() -> Self {
        Self { root: None, durability: Durability::Full, young: false.into(), careless: false.into() }
    }

    pub(crate) fn is_young(&self) -> bool {
        self.young.load(Ordering::Acquire)
    }

    /// Returns true if the database may leave its bytes to the page cache.
    pub(crate) fn is_careless(&self) -> bool {
        self.careless.load(Ordering::Acquire)
    }

    /// Before a change of the records: one that is to be durable needs a store that is.
    pub(crate) fn before_write(&self) -> io::Result<()> {
        if self.durability == Durability::Relaxed || !self.is_young() {
            return Ok(());
        }
        if let Some(root) = &self.root {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            for name in [layout::DATABASE, layout::VERSION, layout::LOCK] {
                rustix::fs::fsync(rustix::fs::openat(root, name, flags, Mode::empty())?)?;
            }
            for name in [INGEST, LAYERS] {
                rustix::fs::fsync(layout::open_directory(root, name)?)?;
            }
        }
        self.end()
    }

    /// Notes that the store is grown up, so that it outlives a stop of the machine. All that is in it must be on the disk.
    pub(crate) fn end(&self) -> io::Result<()> {
        self.careless.store(false, Ordering::Release);
        let Some(root) = self.root.as_ref().filter(|_| self.is_young()) else { return Ok(()) };
        match rustix::fs::unlinkat(root, FILE, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        rustix::fs::fsync(root)?;
        self.young.store(false, Ordering::Release);
        Ok(())
    }
}

/// Empties a store that may be torn. The note is removed last, so that a kill in between begins this again.
pub(crate) fn discard(layout: &Layout) -> io::Result<()> {
    tracing::warn!(root = %layout.path.display(), "what was not yet on the disk when the machine stopped is dropped");
    // Nothing under `ingest/` is trusted: the sweep, which runs next, decides what may be kept of it.
    let names = layout::names(&layout.path.join(LAYERS))?;
    let names: Vec<_> = names.into_iter().map(c_name).collect();
    remove_tree::remove_trees(layout.layers.as_fd(), &names)?;
    let blobs = c_name(BLOBS.into());
    remove_tree::remove_trees(layout.root.as_fd(), &[blobs])?;
    for name in [layout::DATABASE, layout::VERSION, FILE] {
        match rustix::fs::unlinkat(&layout.root, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
