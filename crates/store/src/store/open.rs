//! Opening a store: the lock first, then the version, the directories, the database, and the sweep of what an earlier
//! process left half done. Every step can be killed and is done again by the next open. The other modules add their
//! operations to [`Store`].

use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::Mode;

use super::choice::NewLayers;
use crate::content::unfinished;
use crate::disk::flush::Flusher;
use crate::disk::ground::{self, Ground};
use crate::disk::layout::{self, Layout};
use crate::disk::lock::{Holder, LockError, StoreLock};
use crate::disk::reserve::Reserve;
use crate::disk::young::{self, Age, Youth};
use crate::error::{OpenError, StoreError};
use crate::ingest::layer::NO_SYNC_FAILED;
use crate::layers::shape::Shape;
use crate::maintenance::lease::{Lease, LeaseTable};
use crate::mount::{points, probe};
use crate::records::db::Db;
use crate::records::entries::LayerId;
use crate::unpack::Limits;

/// The version of the layout and of the records. A greater one is refused, a smaller one is migrated.
const VERSION: u32 = 1;
/// What may lie in a root before it is a store: the parts of a store whose making was cut off.
const OURS: [&str; 10] = [
    layout::LOCK,
    layout::VERSION,
    layout::VERSION_NEW,
    layout::DATABASE,
    layout::INGEST,
    layout::LAYERS,
    layout::RESERVE,
    young::FILE,
    probe::FILE,
    probe::FILE_NEW,
];
/// What else may: what the rest of the program keeps in a root also where it needs no store, and what a file system makes.
/// Sockets may, whatever they are called.
const BESIDE_A_STORE: [&str; 6] = [points::DIRECTORY, "image_manager", "image_gc", "pods", "pods.lock", "lost+found"];

/// So many seconds after it was last changed a file is on the disk, as Linux has it by default: 30 until it is old enough,
/// and 5 until somebody looks.
const SETTLED_BY_ITSELF: u64 = 60;

/// How sure a committed image is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The files are on the disk before the image is visible: one `syncfs` for each image.
    #[default]
    Full,
    /// The files are left to the page cache. After a crash of the machine (not of the process), images that were
    /// committed and not yet settled are dropped. What settles them is the clean end of an agent, an end a minute after
    /// the last change of the records, and an open with full durability.
    Relaxed,
}

/// Whether files that several layers have are stored once. Only layers that were unpacked while it was on take part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// Every layer has its own.
    #[default]
    Off,
    /// They share their blocks, on a file system that can (btrfs, XFS); attributes stay each file's own.
    Reflink,
    /// They are links to one inode, where owner, mode, time and extended attributes are the same as well.
    Hardlink,
}

/// What a layer is made into when it is unpacked. Layers that are there stay what they are: a store holds both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LayerFormat {
    /// What serves best here, as the store finds out: [`Store::new_layers`] says what that is.
    #[default]
    Auto,
    /// One EROFS file.
    Erofs,
    /// A directory tree.
    Dir,
}

/// How to open a store.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Where this process answers; written into the lock file for others to find.
    pub agent_socket: Option<PathBuf>,
    /// How sure a commit is.
    pub durability: Durability,
    /// What one layer may hold at most.
    pub limits: Limits,
    /// Whether owners, devices and `trusted.*` attributes can be set. `None`: they can as user 0 of the machine.
    pub privileged: Option<bool>,
    /// Size of the file that is given up when the disk is full, so that removal always works.
    pub reserve_bytes: u64,
    /// Whether files that several layers have are stored once.
    pub sharing: Sharing,
    /// What layers are made into.
    pub layer_format: LayerFormat,
    /// This boot of the machine, by whatever name. `None`: as the kernel names it. What was not synced is trusted within one.
    pub boot: Option<String>,
    /// Since when (nanoseconds since 1970) what pulls left that came to no end is kept for later ones. `None`: nothing is.
    pub unfinished_since: Option<i64>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            agent_socket: None,
            durability: Durability::Full,
            limits: Limits::default(),
            privileged: None,
            reserve_bytes: 8 << 20,
            sharing: Sharing::Off,
            layer_format: LayerFormat::Auto,
            boot: None,
            unfinished_since: None,
        }
    }
}

/// A store of images and layers. Clones share it; the last one that goes gives the lock back. Every operation blocks.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

/// What all clones share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) layout: Layout,
    pub(crate) db: Db,
    pub(crate) limits: Limits,
    pub(crate) durability: Durability,
    pub(crate) sharing: Sharing,
    /// Of layers that are unpacked from now on.
    pub(crate) shape: Shape,
    why_shape: &'static str,
    pub(crate) privileged: bool,
    /// Writes layers to the disk while they come.
    pub(crate) flusher: Flusher,
    /// This boot of the machine, for relaxed durability.
    pub(crate) boot: String,
    /// Whether this process stays, and its end is one of the machine's.
    agent: bool,
    /// Guards who holds which layer, and with it the decision that a layer may go.
    pub(crate) leases: Mutex<LeaseTable>,
    /// Guards the way from private directories to committed layers: one image at a time. The value is the number of the
    /// next layer's directory.
    pub(crate) commit: Mutex<u64>,
    /// Guards the table of mounts: nobody mounts an image while it is being removed.
    pub(crate) mounting: Mutex<()>,
    pub(crate) next_ingest: AtomicU64,
    /// Shared by those who delete directories whose records are gone; a check that looks for directories without records
    /// has it alone.
    pub(crate) deleting: RwLock<()>,
    /// Something could not be deleted, or be moved back: it is looked for later.
    untidy: AtomicBool,
    /// How many syncs of the file system failed.
    pub(crate) failed_syncs: AtomicU64,
    /// Guards the names under `ingest/` that somebody works with. What else is there was left over.
    pub(crate) busy: Mutex<BTreeSet<String>>,
    /// As in the options.
    pub(crate) unfinished_since: Option<i64>,
    /// Guards what pulls left that came to no end.
    pub(crate) left: Mutex<unfinished::Table>,
    /// Guards which layers are damaged, or are about to go although they still have a record: nobody may use them.
    damaged: RwLock<BTreeSet<LayerId>>,
    /// Last, so that it is given back after everything else is closed.
    pub(crate) lock: StoreLock,
}

impl Store {
    /// Opens the store under `root`, and makes it if nothing is there.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(root: &Path, options: OpenOptions) -> Result<Self, OpenError> {
        // The paths that the store gives away must outlive a change of directory.
        let root = &std::path::absolute(root).map_err(|source| io_error("find store root", root, source))?;
        prepare_root(root)?;
        let agent = options.agent_socket.is_some();
        let lock = take_lock(root, options.agent_socket)?;
        let boot = match options.boot {
            Some(boot) => boot,
            None => boot_id().map_err(|source| io_error("read", Path::new(BOOT_ID), source))?,
        };
        let fresh = check_version(root, &boot)?;
        let layout = Layout::open(root).map_err(|source| io_error("open the directories of", root, source))?;
        ground::check_parts(&layout)?;
        narrow(&layout)?;
        let (fresh, youth) = look_at_age(&layout, fresh, &boot, options.durability)?;
        if !fresh {
            ground::check_database(&layout)?;
        }
        let reserve_path = root.join(layout::RESERVE);
        let reserve = Reserve::open(&reserve_path, options.reserve_bytes)
            .map_err(|source| io_error("open", &reserve_path, source))?;
        let reserve = Arc::new(reserve);
        let database = root.join(layout::DATABASE);
        let db = Db::open(&database, Arc::clone(&reserve), youth)
            .map_err(|error| OpenError::of_database(&database, error))?;
        let privileged = options.privileged.unwrap_or_else(is_privileged);
        let (shape, why_shape) =
            Shape::of_new_layers(options.layer_format, options.sharing, privileged, || probe::support(&layout));
        tracing::debug!(?shape, why = why_shape, "what new layers are made into");
        if fresh {
            ground::try_file_system(&layout, shape, privileged)?;
            let text = format!("{VERSION}\n");
            layout::write_whole(&layout.root, layout::VERSION, layout::VERSION_NEW, text.as_bytes())
                .map_err(|source| io_error("write the version of", root, source))?;
        }
        db.stand_on(Ground::of(root).map_err(|source| io_error("look at", root, source))?);
        let inner = Inner {
            layout,
            db,
            limits: options.limits,
            durability: options.durability,
            sharing: options.sharing,
            shape,
            why_shape,
            privileged,
            flusher: Flusher::default(),
            boot,
            agent,
            leases: Mutex::default(),
            commit: Mutex::new(1),
            mounting: Mutex::default(),
            next_ingest: AtomicU64::new(1),
            deleting: RwLock::default(),
            untidy: AtomicBool::new(false),
            failed_syncs: AtomicU64::new(NO_SYNC_FAILED),
            busy: Mutex::default(),
            unfinished_since: options.unfinished_since,
            left: Mutex::default(),
            damaged: RwLock::default(),
            lock,
        };
        let store = Self { inner: Arc::new(inner) };
        store.inner.sweep_at_open()?;
        store.inner.respell_names()?;
        store.inner.report_unverified_names()?;
        store.inner.try_sharing().map_err(|source| OpenError::NoSharing {
            root: root.to_owned(),
            way: if options.sharing == Sharing::Reflink { "reflink" } else { "hardlink" },
            source: source.into(),
        })?;
        // A store that was made just now grows up with its first commit.
        if options.durability == Durability::Full && !fresh {
            store.inner.settle()?;
        }
        store.inner.mark_in_use().map_err(|source| io_error("write the lock file of", root, source))?;
        if store.inner.db.reserve().ensure().is_err() {
            // What can be fetched again has to go before the disk is called full.
            store.drop_unfinished(None);
        }
        if let Err(error) = store.inner.db.reserve().ensure() {
            tracing::warn!(%error, reserve = %reserve_path.display(), "the disk is too full for the store's reserve");
        }
        Ok(store)
    }

    /// Where the store is.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.inner.layout.path
    }

    /// Whether owners, devices and privileged attributes are set when layers are unpacked.
    #[must_use]
    pub fn is_privileged(&self) -> bool {
        self.inner.privileged
    }

    /// What layers are made into from now on, and why.
    #[must_use]
    pub fn new_layers(&self) -> NewLayers {
        NewLayers::of((self.inner.shape, self.inner.why_shape))
    }

    /// A new lease. A pull takes one before it looks for layers, and keeps it until its image is committed.
    #[must_use]
    pub fn lease(&self) -> Lease {
        Lease::new(Arc::clone(&self.inner))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.settles_at_end() {
            return;
        }
        if let Err(error) = self.settle() {
            self.lock.note_unclean();
            tracing::warn!(%error, "the store was closed without a sync; images of relaxed durability may not survive a crash");
        }
    }
}

fn io_error(operation: &'static str, path: &Path, source: impl Into<io::Error>) -> OpenError {
    OpenError::io(operation, path, source)
}

/// Makes the root where it is missing, and refuses one that is not ours. Changes nothing that exists.
fn prepare_root(root: &Path) -> Result<(), OpenError> {
    match layout::create_root(root) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(OpenError::NotADirectory { root: root.to_owned() });
        }
        Err(error) => return Err(io_error("create store root", root, error)),
    }
    let metadata = std::fs::metadata(root).map_err(|source| io_error("look at store root", root, source))?;
    if !metadata.is_dir() {
        return Err(OpenError::NotADirectory { root: root.to_owned() });
    }
    let (owner, user) = (std::os::unix::fs::MetadataExt::uid(&metadata), rustix::process::geteuid().as_raw());
    if owner != user {
        return Err(OpenError::NotOwned { root: root.to_owned(), owner, user });
    }
    let version = root.join(layout::VERSION);
    if version.try_exists().map_err(|source| io_error("look at", &version, source))? {
        return Ok(());
    }
    let entries = std::fs::read_dir(root).map_err(|source| io_error("list store root", root, source))?;
    for entry in entries {
        let entry = entry.map_err(|source| io_error("list store root", root, source))?;
        let name = entry.file_name();
        let is_socket = entry.file_type().is_ok_and(|kind| std::os::unix::fs::FileTypeExt::is_socket(&kind));
        if !is_socket && !OURS.iter().chain(&BESIDE_A_STORE).any(|known| name == *known) {
            let found = name.to_string_lossy().into_owned();
            return Err(OpenError::NotAStore { root: root.to_owned(), found });
        }
    }
    Ok(())
}

fn take_lock(root: &Path, socket: Option<PathBuf>) -> Result<StoreLock, OpenError> {
    let path = root.join(layout::LOCK);
    let holder = Holder { pid: std::process::id(), socket, since: None };
    StoreLock::take(&path, holder).map_err(|error| match error {
        LockError::Held(holder) => {
            let (pid, socket) = holder.map_or((None, None), |holder| (Some(holder.pid), holder.socket));
            OpenError::Held { root: root.to_owned(), pid, socket }
        }
        LockError::Io(source) => io_error("lock", &path, source),
    })
}

/// Says whether the store is yet to be made, or to be made again: with the rest of a young one its version may be torn.
fn check_version(root: &Path, boot: &str) -> Result<bool, OpenError> {
    let path = root.join(layout::VERSION);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(io_error("read", &path, error)),
    };
    match text.trim().parse::<u32>() {
        Ok(VERSION) => Ok(false),
        Ok(found) if found > VERSION => {
            Err(OpenError::NewerVersion { root: root.to_owned(), found, supported: VERSION })
        }
        Err(_) if is_torn(root, boot).map_err(|source| io_error("look at the age of", root, source))? => Ok(true),
        // Version 1 is the first: there is nothing yet that could be migrated.
        _ => Err(StoreError::Corrupt(format!("{} says {:?}, which is no version", path.display(), text.trim())).into()),
    }
}

/// Only the owner has business here: layers hold set-uid programs of foreign origin.
fn narrow(layout: &Layout) -> Result<(), OpenError> {
    for (directory, name) in [(&layout.root, ""), (&layout.ingest, layout::INGEST), (&layout.layers, layout::LAYERS)] {
        let path = layout.path.join(name);
        let mode = rustix::fs::fstat(directory).map_err(|source| io_error("look at", &path, source))?.st_mode & 0o7777;
        if mode != 0o700 {
            tracing::warn!(path = %path.display(), mode = format!("{mode:o}"), "mode is set to 700");
            rustix::fs::fchmod(directory, Mode::RWXU).map_err(|source| io_error("set the mode of", &path, source))?;
        }
    }
    Ok(())
}

/// Without a version file nothing was ever committed: what is there comes from a creation that was cut off.
fn discard_unfinished(layout: &Layout) -> Result<(), OpenError> {
    let layers = layout.path.join(layout::LAYERS);
    let found = layout::names(&layers).map_err(|source| io_error("list", &layers, source))?;
    if let Some(name) = found.first() {
        let found = format!("{}/{}", layout::LAYERS, name.to_string_lossy());
        return Err(OpenError::NotAStore { root: layout.path.clone(), found });
    }
    match rustix::fs::unlinkat(&layout.root, layout::DATABASE, rustix::fs::AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(error) => Err(io_error("discard", &layout.path.join(layout::DATABASE), error)),
    }
}

/// User 0 of the machine, not of a user namespace that maps few users and may make no devices.
pub(crate) fn is_privileged() -> bool {
    if !rustix::process::geteuid().is_root() {
        return false;
    }
    let map = std::fs::read_to_string("/proc/self/uid_map");
    map.is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
}

/// Whether the machine has stopped while the store was young.
fn is_torn(root: &Path, boot: &str) -> io::Result<bool> {
    let root = OwnedFd::from(std::fs::File::open(root)?);
    Ok(Youth::find(&root, boot)? == Age::Torn)
}

/// Looks whether the store was made for good. One that may be torn is emptied. Says whether it is yet to be made.
fn look_at_age(
    layout: &Layout,
    mut fresh: bool,
    boot: &str,
    durability: Durability,
) -> Result<(bool, Arc<Youth>), OpenError> {
    let failed = |operation| {
        let path = layout.path.clone();
        move |source: io::Error| io_error(operation, &path, source)
    };
    let age = Youth::find(&layout.root, boot).map_err(failed("look at the age of"))?;
    if age == Age::Torn {
        young::discard(layout).map_err(failed("empty"))?;
        fresh = true;
    }
    if fresh {
        discard_unfinished(layout)?;
        Youth::begin(&layout.root, boot).map_err(failed("begin"))?;
    }
    let youth = Youth::new(&layout.root, durability, fresh || age == Age::Young).map_err(failed("begin"))?;
    Ok((fresh, Arc::new(youth)))
}

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string(BOOT_ID)?.trim().to_owned())
}

impl Inner {
    /// Whether the layer's tree is there and may be used.
    pub(crate) fn has_layer(&self, id: LayerId) -> bool {
        !self.damaged.read().contains(&id) && self.layout.has_layer(id)
    }

    /// From now on nobody uses these layers.
    pub(crate) fn distrust(&self, layers: impl IntoIterator<Item = LayerId>) {
        self.damaged.write().extend(layers);
    }

    /// From now on an end that is not clean is seen by the next open. Nothing is synced for that: layers get durable with the
    /// sync of their commit, which takes the note along, and where nothing was committed there is nothing to look at.
    fn mark_in_use(&self) -> io::Result<()> {
        match self.lock.unclean() {
            None => {
                let next = *self.commit.lock();
                self.lock.good_up_to(next, false)
            }
            Some(_) => Ok(()),
        }
    }

    /// Whether an end has something to make sure, and may take the time that it takes.
    fn settles_at_end(&self) -> bool {
        match self.durability {
            // Nothing was ever written.
            Durability::Full => !self.db.youth().is_young(),
            // After a pull that was not to wait for a sync, its process does not either. By a minute after the last change the
            // kernel has written all of it, and it costs little to say so.
            Durability::Relaxed => {
                self.agent || self.lock.follows(&self.layout.path.join(layout::DATABASE)) >= SETTLED_BY_ITSELF
            }
        }
    }

    /// Notes in the lock file that all layers below this number are good.
    pub(crate) fn good_up_to(&self, next_layer: u64) -> io::Result<()> {
        self.lock.good_up_to(next_layer, !self.db.youth().is_young())
    }

    /// Notes that something is left which is nobody's.
    pub(crate) fn note_untidy(&self) {
        self.untidy.store(true, Ordering::Release);
    }

    /// Says whether something is left which is nobody's, once.
    pub(crate) fn take_untidy(&self) -> bool {
        self.untidy.load(Ordering::Acquire) && self.untidy.swap(false, Ordering::AcqRel)
    }

    /// Writes what new layers have to the disk. Where that fails, none is used that was begun before: what the kernel could
    /// not write it does not try to write once more.
    pub(crate) fn sync_layers(&self) -> Result<(), StoreError> {
        let synced = self.sync_file_system();
        if synced.is_err() {
            self.failed_syncs.fetch_add(1, Ordering::AcqRel);
            if let Err(error) = unfinished::forget_layers(&self.layout.root) {
                tracing::warn!(%error, "what says that layers are whole stays, although something could not be written");
            }
        }
        synced
    }

    /// Writes all files of the store's file system to the disk.
    pub(crate) fn sync_file_system(&self) -> Result<(), StoreError> {
        rustix::fs::syncfs(&self.layout.root)
            .map_err(|source| StoreError::io("sync the file system of", &self.layout.path, source))
    }
}
