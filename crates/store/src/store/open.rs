//! Opening a store: the lock first, then the version, the directories, the database, and the sweep of what an earlier
//! process left half done. Every step can be killed and is done again by the next open.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::Mode;

use super::file_system;
use crate::content::Content;
use crate::disk::Disk;
use crate::disk::identity::StoreIdentity;
use crate::disk::is_privileged;
use crate::disk::layer::Shape;
use crate::disk::layout::{self, Layout};
use crate::disk::lock::{Holder, LockError, StoreLock};
use crate::disk::reserve::Reserve;
use crate::disk::young::{self, Age, Youth};
use crate::error::{OpenError, StoreError};
use crate::ingest::Ingests;
use crate::ingest::choice::NewLayers;
use crate::layers::Layers;
use crate::maintenance::Maintenance;
use crate::mount::mounts::Mounts;
use crate::mount::{points, probe, why_no_lasting_mounts};
use crate::options::{Durability, OpenOptions};
use crate::podman::view::View;
use crate::records::catalog::Catalog;
use crate::records::db::Db;
use crate::store::Store;

/// The version of the layout and of the records. A greater one is refused, a smaller one is migrated.
const VERSION: u32 = 1;
/// Names that may lie in a root before it is a store: the parts of a store whose making was cut off.
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
/// Further names that may: of files that the rest of the program keeps in a root without a store, and of those that a file system makes.
/// Sockets may, whatever they are called.
const BESIDE_A_STORE: [&str; 7] =
    [points::DIRECTORY, "image_manager", "image_gc", "mounted-layers", "pods", "pods.lock", "lost+found"];

impl Store {
    /// Opens the store under `root`. Creates it if there is none.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(root: &Path, options: OpenOptions) -> Result<Self, OpenError> {
        // The paths that the store gives away must outlive a change of directory.
        let root = &std::path::absolute(root).map_err(|source| io_error("find store root", root, source))?;
        prepare_root(root)?;
        let agent = options.agent_socket.is_some();
        let holder = Holder {
            pid: std::process::id(),
            command: options.command,
            settings: options.settings,
            socket: options.agent_socket,
            since: None,
        };
        let lock = take_lock(root, holder)?;
        let boot = match options.boot {
            Some(boot) => boot,
            None => boot_id().map_err(|source| io_error("read", Path::new(BOOT_ID), source))?,
        };
        let fresh = check_version(root, &boot)?;
        let layout = Layout::open(root).map_err(|source| io_error("open the directories of", root, source))?;
        file_system::check_parts(&layout)?;
        narrow(&layout)?;
        let (fresh, youth) = resolve_age(&layout, fresh, &boot, options.durability)?;
        if !fresh {
            file_system::check_database(&layout)?;
        }
        let reserve_path = root.join(layout::RESERVE);
        let reserve = Reserve::open(&reserve_path, options.reserve_bytes)
            .map_err(|source| io_error("open", &reserve_path, source))?;
        let reserve = Arc::new(reserve);
        let database = root.join(layout::DATABASE);
        let db = Db::open(&database, Arc::clone(&reserve), youth)
            .map_err(|error| OpenError::of_database(&database, error))?;
        let privileged = options.privileged.unwrap_or_else(is_privileged);
        let (shape, why_shape) = Shape::of_new_layers(options.layer_format, privileged, || probe::support(&layout));
        tracing::debug!(?shape, reason = why_shape, "what new layers are made into");
        if fresh {
            file_system::try_file_system(&layout, shape, privileged)?;
            let text = format!("{VERSION}\n");
            layout::write_whole(&layout.root, layout::VERSION, layout::VERSION_NEW, text.as_bytes())
                .map_err(|source| io_error("write the version of", root, source))?;
        }
        db.bind(StoreIdentity::of(root).map_err(|source| io_error("look at", root, source))?);
        let durability = options.durability;
        let catalog = Arc::new(Catalog { db, disk: Disk::new(layout), durability, boot, agent, lock });
        let content = Arc::new(Content::new(&catalog, options.unfinished_since));
        let layers = Arc::new(Layers::new(&content, privileged));
        let view = Arc::new(View::open(&layers, options.mounted_view, why_no_lasting_mounts));
        let mounts = Arc::new(Mounts::new(&layers, &view));
        let maintenance = Arc::new(Maintenance::new(&content, &layers, &mounts));
        let ingests = Arc::new(Ingests::new(&maintenance, options.limits, shape, options.layer_format));
        let new_layers = NewLayers::of((shape, why_shape));
        let store = Self { catalog, content, layers, mounts, maintenance, ingests, new_layers };
        store.maintenance.sweep_at_open()?;
        // From now on the view follows the records.
        view.follow();
        let follower = Arc::downgrade(&view);
        store.catalog.db.follow_with(move || {
            if let Some(view) = follower.upgrade() {
                view.follow();
            }
        });
        store.catalog.respell_names()?;
        store.catalog.report_unverified_names()?;
        // A store that was made just now grows up with its first commit.
        if options.durability == Durability::Full && !fresh {
            store.catalog.settle()?;
        }
        store
            .catalog
            .mark_in_use(*store.maintenance.commit.lock())
            .map_err(|source| io_error("write the lock file of", root, source))?;
        if store.catalog.db.reserve().ensure().is_err() {
            // Content that can be fetched again has to be removed before the disk is reported as full.
            store.drop_unfinished(None);
        }
        if let Err(error) = store.catalog.db.reserve().ensure() {
            tracing::warn!(%error, reserve = %reserve_path.display(), "the disk is too full for the store's reserve");
        }
        Ok(store)
    }
}

impl Store {
    /// Returns true if [`Store::open`] would make a new store under `root`: it is missing, or has nothing of a store.
    ///
    /// # Errors
    /// The directory could not be read.
    pub fn is_absent(root: &Path) -> io::Result<bool> {
        let entries = match std::fs::read_dir(root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            Err(error) => return Err(error),
        };
        for entry in entries {
            if !is_ignored_at_open(&entry?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// When the records under `root` were changed last, as the file system says; `None` where there are none. Any process may ask.
    #[must_use]
    pub fn changed_at(root: &Path) -> Option<std::time::SystemTime> {
        std::fs::metadata(root.join(layout::DATABASE)).and_then(|found| found.modified()).ok()
    }

    /// The bytes on disk of the files under `root` that belong to no image: the reserve, and the database. Any process may ask.
    ///
    /// # Errors
    /// The files could not be inspected.
    pub fn own_files(root: &Path) -> io::Result<(u64, u64)> {
        let on_disk = |name: &str| match std::fs::metadata(root.join(name)) {
            Ok(found) => Ok(std::os::unix::fs::MetadataExt::blocks(&found).saturating_mul(512)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        };
        Ok((on_disk(layout::RESERVE)?, on_disk(layout::DATABASE)?))
    }
}

/// Returns true for what may lie in a root without a store.
fn is_ignored_at_open(entry: &std::fs::DirEntry) -> bool {
    let name = entry.file_name();
    let is_socket = || entry.file_type().is_ok_and(|kind| std::os::unix::fs::FileTypeExt::is_socket(&kind));
    BESIDE_A_STORE.iter().any(|known| name == *known) || is_socket()
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
        if !is_ignored_at_open(&entry) && !OURS.iter().any(|known| name == *known) {
            let found = name.to_string_lossy().into_owned();
            return Err(OpenError::NotAStore { root: root.to_owned(), found });
        }
    }
    Ok(())
}

fn take_lock(root: &Path, holder: Holder) -> Result<StoreLock, OpenError> {
    let path = root.join(layout::LOCK);
    StoreLock::take(&path, holder).map_err(|error| match error {
        LockError::Held(None) => {
            OpenError::Held { root: root.to_owned(), pid: None, command: None, settings: None, socket: None }
        }
        LockError::Held(Some(Holder { pid, command, settings, socket, .. })) => {
            OpenError::Held { root: root.to_owned(), pid: Some(pid), command, settings, socket }
        }
        LockError::Io(source) => io_error("lock", &path, source),
    })
}

/// Returns whether the store is yet to be made, or to be made again: a young one's version may be torn like the rest.
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

/// Restricts the root to its owner: layers hold set-uid programs of foreign origin.
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

/// Without a version file nothing was ever committed: the existing files belong to an interrupted creation.
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

/// Returns true if the machine has stopped while the store was young.
fn is_torn(root: &Path, boot: &str) -> io::Result<bool> {
    let root = OwnedFd::from(std::fs::File::open(root)?);
    Ok(Youth::find(&root, boot)? == Age::Torn)
}

/// Determines the age of the store. A store that may be torn is emptied. Returns whether the store is yet to be made.
fn resolve_age(
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
