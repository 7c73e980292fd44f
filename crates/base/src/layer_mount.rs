//! [`LayerMount`]: a layer that is one EROFS file, and is used as a directory by programs that take only directories. The file is
//! mounted once, read-only, in the mount namespace of the caller, and the mount outlives every process:
//!
//! ```text
//! <directory>/layer.erofs      the file; its tree lies in the directory root of the file
//! <directory>/mnt              the mount point
//! <directory>/fs -> mnt/root   a symbolic link in place of the directory
//! ```
//!
//! The link leads nowhere while the file is not mounted, so that a layer is missing then and never empty. Its target is relative and
//! in the same directory, so that containers in user namespaces find it in their own copy of the mounts. Knows no images, and trusts no
//! state other than that on the disk and in the kernel.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, UnmountFlags, move_mount, unmount};

use crate::mount::mounts_lenient;
use crate::{ErofsMount, ErofsMountStep, FileLock, LAYER_DEVICE, LoopDevices, mount_erofs, overlay_mounts};

/// Name of the EROFS file.
pub const LAYER_FILE: &str = "layer.erofs";
/// Name of the mount point.
const MOUNT_POINT: &str = "mnt";
/// Target of the link.
pub const TREE: &str = "mnt/root";
/// Name of the link before it is exchanged for a directory, and of that directory afterwards.
const NEW: &str = "fs.new";
/// Name of a directory before it is exchanged for the link, and of the link afterwards.
const DIRECTORY: &str = "fs.directory";
/// Name of a directory that an EROFS file replaced, as long as containers may use it.
const REPLACED: &str = "fs.replaced";
/// Type of EROFS in statfs(2).
const EROFS_MAGIC: rustix::fs::FsWord = 0xe0f5_e1e2;

/// A layer that can be an EROFS file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerMount {
    directory: PathBuf,
    /// Path of the link, or of the directory that is in its place.
    tree: PathBuf,
}

/// Reason for which a layer cannot be used.
#[derive(Debug)]
pub enum LayerError {
    /// The layer is missing or damaged: another file has to be placed.
    Damaged(io::Error),
    /// A system call failed, which says nothing about the layer.
    Failed(io::Error),
}

impl fmt::Display for LayerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(error) | Self::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LayerError {}

impl From<LayerError> for io::Error {
    fn from(error: LayerError) -> Self {
        match error {
            LayerError::Damaged(error) | LayerError::Failed(error) => error,
        }
    }
}

/// The result of [`mount_all`].
#[derive(Debug, Default)]
pub struct MountAllOutcome {
    /// Number of layers that are EROFS files.
    pub layers: usize,
    /// Number of these that were not mounted before.
    pub mounted: usize,
    /// The layers that cannot be mounted, with the reasons.
    pub failed: Vec<(PathBuf, LayerError)>,
}

impl LayerMount {
    /// The layer whose tree is at this path. `None` if the path has no parent.
    #[must_use]
    pub fn of(tree: &Path) -> Option<Self> {
        Some(Self { directory: tree.parent()?.to_owned(), tree: tree.to_owned() })
    }

    /// Makes a damaged layer unusable: its images count as absent until a pull repairs it. Containers that run keep the mount.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn discard(&self) -> io::Result<()> {
        let _lock = self.lock()?;
        std::fs::remove_file(self.file()).map_err(|error| named(&self.file(), &error))?;
        self.detach()
    }

    /// Path of the EROFS file.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.directory.join(LAYER_FILE)
    }

    /// Name of the layer's directory, if it is text.
    #[must_use]
    pub fn name(&self) -> Option<String> {
        self.directory.file_name()?.to_str().map(str::to_owned)
    }

    /// Path of the tree: a directory, or the link to the mounted one.
    #[must_use]
    pub fn tree(&self) -> &Path {
        &self.tree
    }

    /// Returns true if the layer is an EROFS file: its tree is the link.
    #[must_use]
    pub fn is_linked(&self) -> bool {
        std::fs::read_link(&self.tree).is_ok_and(|target| target == Path::new(TREE))
    }

    /// Returns true if the file is mounted.
    #[must_use]
    pub fn is_mounted(&self) -> bool {
        rustix::fs::statfs(self.directory.join(TREE)).is_ok_and(|found| found.f_type == EROFS_MAGIC)
    }

    /// Mounts the layer if it is an EROFS file that is not mounted. Returns true if it was mounted now.
    ///
    /// # Errors
    /// See [`LayerError`].
    pub fn make_ready(&self) -> Result<bool, LayerError> {
        self.make_ready_with(&mut None)
    }

    fn make_ready_with(&self, devices: &mut Option<LoopDevices>) -> Result<bool, LayerError> {
        if !self.is_linked() {
            let found = std::fs::symlink_metadata(&self.tree).map_err(|error| missing_or_failed(&self.tree, &error))?;
            let other = || named(&self.tree, &io::Error::other("it is neither a directory nor the link to a layer"));
            return if found.is_dir() { Ok(false) } else { Err(LayerError::Damaged(other())) };
        }
        // A mount keeps a deleted file until the machine is started again.
        let file = self.open()?;
        if self.is_mounted() {
            return Ok(false);
        }
        let _lock = self.lock().map_err(LayerError::Failed)?;
        if self.is_mounted() {
            return Ok(false);
        }
        let devices = devices.get_or_insert_with(LoopDevices::read);
        self.mount(&file, devices).map(|()| true)
    }

    fn open(&self) -> Result<File, LayerError> {
        let path = self.file();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let irregular = || LayerError::Damaged(named(&path, &io::Error::other("it is not a regular file")));
        let file = match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::LOOP) => return Err(irregular()),
            Err(error) => return Err(missing_or_failed(&path, &error.into())),
        };
        let found = file.metadata().map_err(|error| LayerError::Failed(named(&path, &error)))?;
        if found.is_file() { Ok(file) } else { Err(irregular()) }
    }

    /// Held while the layer is mounted, unmounted or replaced, so that no two processes do so at the same time.
    fn lock(&self) -> io::Result<FileLock<OwnedFd>> {
        let directory = open_directory(&self.directory)?;
        rustix::fs::flock(&directory, FlockOperation::LockExclusive)?;
        Ok(FileLock::new(directory))
    }

    fn mount(&self, file: &File, devices: &LoopDevices) -> Result<(), LayerError> {
        let path = self.file();
        let failed = |error: io::Error| LayerError::Failed(named(&path, &error));
        let damaged = |error: io::Error| LayerError::Damaged(named(&path, &error));
        if file.metadata().map_err(failed)?.len() < u64::from(LAYER_DEVICE.block_bytes) {
            return Err(damaged(io::Error::other("it is shorter than a block")));
        }
        // The device reads past the page cache of the file, which would hold everything a second time.
        let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
        let device = devices.shared(file, LAYER_DEVICE).map_err(failed)?;
        let context = security_context(&self.directory);
        let mount = ErofsMount { source: device.path(), devices: &[], direct: false, context: context.as_deref() };
        let mounted = mount_erofs(mount).map_err(|error| match (error.step, error.number) {
            // The kernel read the file, and does not take it.
            (ErofsMountStep::Create, Errno::INVAL | Errno::UCLEAN | Errno::IO | Errno::BADMSG | Errno::OPNOTSUPP) => {
                damaged(error.source)
            }
            _ => failed(error.source),
        })?;
        let has_tree =
            rustix::fs::statat(&mounted, Path::new(TREE).file_name().unwrap_or_default(), AtFlags::SYMLINK_NOFOLLOW);
        if !has_tree.is_ok_and(|found| rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir()) {
            return Err(damaged(io::Error::other("it has no directory root: it is not the file of a layer")));
        }
        let point = self.directory.join(MOUNT_POINT);
        match rustix::fs::mkdirat(CWD, &point, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(LayerError::Failed(named(&point, &error.into()))),
        }
        move_mount(&mounted, "", CWD, &point, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(|error| LayerError::Failed(named(&point, &error.into())))
    }

    /// Makes a durable EROFS file on the same file system the layer's, mounts it, and puts the link in place of an empty directory,
    /// durably. A file that the layer had before is replaced.
    ///
    /// # Errors
    /// A system call failed; the layer is not complete.
    pub fn place(&self, layer: &Path) -> io::Result<()> {
        let lock = self.lock()?;
        self.put_file(layer, &lock)?;
        if !self.is_linked() {
            make_link(&lock)?;
            self.exchange(&lock, NEW)?;
            // The link replaced an empty directory, or another link.
            match rustix::fs::unlinkat(lock.as_fd(), NEW, AtFlags::REMOVEDIR) {
                Err(Errno::NOTDIR) => rustix::fs::unlinkat(lock.as_fd(), NEW, AtFlags::empty())?,
                removed => removed?,
            }
        }
        rustix::fs::fsync(lock.as_fd())?;
        Ok(())
    }

    fn put_file(&self, layer: &Path, directory: &OwnedFd) -> io::Result<()> {
        rustix::fs::renameat(CWD, layer, directory, LAYER_FILE)?;
        self.detach()?;
        let file = self.open()?;
        // Only a file with another name can be mounted already.
        let devices = if file.metadata()?.nlink() > 1 { LoopDevices::read() } else { LoopDevices::none() };
        Ok(self.mount(&file, &devices)?)
    }

    /// Exchanges the tree for the link or directory with this name, in one step.
    fn exchange(&self, directory: &OwnedFd, name: &str) -> io::Result<()> {
        let tree = self.tree.file_name().unwrap_or_default();
        rustix::fs::renameat_with(directory, name, directory, tree, RenameFlags::EXCHANGE)?;
        Ok(())
    }

    /// Makes an EROFS file the layer in place of its directory, whose files stay until no container uses them: see [`sweep`].
    ///
    /// # Errors
    /// A system call failed, or containers use a directory that the layer had before; the layer is a directory still.
    pub fn to_file(&self, layer: &Path) -> io::Result<()> {
        let lock = self.lock()?;
        self.remove_replaced()?;
        if [REPLACED, NEW].iter().any(|name| self.directory.join(name).is_dir()) {
            return Err(named(&self.tree, &io::Error::other("containers use a directory that it had before")));
        }
        self.put_file(layer, &lock)?;
        make_link(&lock)?;
        rustix::fs::fsync(lock.as_fd())?;
        self.exchange(&lock, NEW)?;
        rustix::fs::renameat(lock.as_fd(), NEW, lock.as_fd(), REPLACED)?;
        rustix::fs::fsync(lock.as_fd())?;
        Ok(())
    }

    /// Makes a durable directory on the same file system the layer in place of its EROFS file. Containers that run keep the mount.
    ///
    /// # Errors
    /// A system call failed; the layer is an EROFS file still.
    pub fn to_directory(&self, tree: &Path) -> io::Result<()> {
        let lock = self.lock()?;
        // An attempt that was cut off left a directory that was never in use, or the link.
        let staged = self.directory.join(DIRECTORY);
        match std::fs::symlink_metadata(&staged) {
            Ok(found) if found.is_dir() => std::fs::remove_dir_all(&staged)?,
            Ok(_) => std::fs::remove_file(&staged)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(named(&staged, &error)),
        }
        rustix::fs::renameat(CWD, tree, lock.as_fd(), DIRECTORY)?;
        rustix::fs::fsync(lock.as_fd())?;
        self.exchange(&lock, DIRECTORY)?;
        rustix::fs::fsync(lock.as_fd())?;
        rustix::fs::unlinkat(lock.as_fd(), DIRECTORY, AtFlags::empty())?;
        self.remove_file(&lock)?;
        self.remove_mount()
    }

    /// Unmounts the layer and removes its file, so that the owner of the directory can remove the rest. The link stays, and leads nowhere.
    ///
    /// # Errors
    /// A system call failed.
    pub fn release(&self) -> io::Result<()> {
        let lock = self.lock()?;
        self.remove_mount()?;
        self.remove_file(&lock)
    }

    /// Removes the EROFS file, if there is one.
    fn remove_file(&self, directory: &OwnedFd) -> io::Result<()> {
        match rustix::fs::unlinkat(directory, LAYER_FILE, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(named(&self.file(), &error.into())),
        }
    }

    /// Bytes on disk of the EROFS file; 0 if the layer is a directory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        if !self.is_linked() {
            return 0;
        }
        std::fs::symlink_metadata(self.file()).map_or(0, |found| found.blocks() * 512)
    }

    /// Unmounts what is mounted at the mount point, and keeps it for the containers that use it.
    fn detach(&self) -> io::Result<()> {
        let point = self.directory.join(MOUNT_POINT);
        while self.is_mount_point()? {
            unmount(&point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
                .map_err(|error| named(&point, &error.into()))?;
        }
        Ok(())
    }

    /// Returns true if something is mounted at the mount point: it is on another device than its directory.
    fn is_mount_point(&self) -> io::Result<bool> {
        let point = self.directory.join(MOUNT_POINT);
        match rustix::fs::lstat(&point) {
            Ok(found) => Ok(found.st_dev != rustix::fs::lstat(&self.directory)?.st_dev),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(named(&point, &error.into())),
        }
    }

    fn remove_mount(&self) -> io::Result<()> {
        self.detach()?;
        match std::fs::remove_dir(self.directory.join(MOUNT_POINT)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Returns the layers in `directory` whose trees have this name and which are EROFS files.
///
/// # Errors
/// The directory cannot be read.
pub fn linked_layers(directory: &Path, tree: &str) -> io::Result<Vec<LayerMount>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let layer = entry?.path();
        let layer = LayerMount { tree: layer.join(tree), directory: layer };
        if layer.is_linked() {
            found.push(layer);
        }
    }
    Ok(found)
}

/// Mounts the layers in `directory` that are EROFS files and not mounted. Needs nothing but the links and files.
///
/// # Errors
/// The directory cannot be read.
pub fn mount_all(directory: &Path, tree: &str) -> io::Result<MountAllOutcome> {
    let layers = linked_layers(directory, tree)?;
    let mut result = MountAllOutcome { layers: layers.len(), ..MountAllOutcome::default() };
    let mut devices = None;
    for layer in layers {
        match layer.make_ready_with(&mut devices) {
            Ok(mounted) => result.mounted += usize::from(mounted),
            Err(error) => result.failed.push((layer.directory, error)),
        }
    }
    Ok(result)
}

/// Unmounts the layers in `directory` whose trees were removed or became directories, and removes what is left of their files. Removes
/// directories that were replaced by EROFS files and that no container uses. Returns the number of layers that were unmounted.
///
/// # Errors
/// The mounts cannot be read, or a system call failed.
pub fn sweep(directory: &Path, tree: &str) -> io::Result<usize> {
    // The kernel names mounts by their real paths.
    let directory = std::fs::canonicalize(directory)?;
    let of = |layer: &Path| LayerMount { tree: layer.join(tree), directory: layer.to_owned() };
    let (mut swept, mut failed) = (0, None);
    for mount in mounts_lenient()? {
        let Some(layer) = mount.target.parent().filter(|layer| layer.parent() == Some(&directory)) else { continue };
        if mount.target.file_name() == Some(OsStr::new(MOUNT_POINT)) {
            match of(layer).sweep() {
                Ok(is_swept) => swept += usize::from(is_swept),
                Err(error) => failed = Some(error),
            }
        }
    }
    for entry in std::fs::read_dir(&directory)? {
        let layer = of(&entry?.path());
        if layer.has_replaced()
            && let Err(error) = layer.lock().and_then(|_lock| layer.remove_replaced())
        {
            failed = Some(error);
        }
    }
    failed.map_or(Ok(swept), Err)
}

/// The tree of a layer that may have to be unmounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeftTree {
    /// None: the layer was removed.
    Removed,
    /// A directory: the layer was converted, or was never complete.
    Directory,
    /// A link: the layer is in use or damaged.
    Link,
}

impl LayerMount {
    fn left_tree(&self) -> io::Result<LeftTree> {
        match std::fs::symlink_metadata(&self.tree) {
            Ok(found) if found.is_dir() => Ok(LeftTree::Directory),
            Ok(_) => Ok(LeftTree::Link),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(LeftTree::Removed),
            Err(error) => Err(named(&self.tree, &error)),
        }
    }

    fn sweep(&self) -> io::Result<bool> {
        if self.left_tree()? == LeftTree::Link {
            return Ok(false);
        }
        // A layer that is being placed is complete once the lock is free.
        let lock = self.lock()?;
        let left = self.left_tree()?;
        if left == LeftTree::Link {
            return Ok(false);
        }
        self.remove_file(&lock)?;
        self.remove_mount()?;
        drop(lock);
        if left == LeftTree::Removed {
            // The owner of the directory removes what else is in it.
            let _ = std::fs::remove_dir(&self.directory);
        }
        Ok(true)
    }

    /// Directories that an EROFS file replaced. The second one has its name if the exchange was cut off.
    fn replaced(&self) -> impl Iterator<Item = PathBuf> {
        let paths = [REPLACED, NEW].map(|name| self.directory.join(name));
        paths.into_iter().filter(|path| std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()))
    }

    fn has_replaced(&self) -> bool {
        self.replaced().next().is_some()
    }

    /// Removes the directories that an EROFS file replaced, if no overlay on this machine has this layer.
    fn remove_replaced(&self) -> io::Result<()> {
        if !self.has_replaced() {
            return Ok(());
        }
        let name = self.directory.file_name().map_or(self.directory.as_path(), Path::new);
        let relative = name.join(self.tree.file_name().unwrap_or_default());
        let own = std::fs::canonicalize(&self.directory)?;
        let is_this = |lower: &PathBuf| {
            let parent = lower.parent().filter(|_| lower.is_absolute() && lower.ends_with(&relative));
            match parent.map(std::fs::canonicalize) {
                Some(Ok(parent)) => parent == own,
                // Relative paths, which containerd uses for many layers, do not say which directory they are in.
                Some(Err(_)) | None => lower.ends_with(&relative),
            }
        };
        if overlay_mounts()?.iter().any(|mount| mount.lower.iter().any(is_this)) {
            return Ok(());
        }
        self.replaced().try_for_each(std::fs::remove_dir_all)
    }
}

/// A directory of links to directories with layers, by which a start of the machine finds the layers that must be mounted.
#[derive(Clone, Debug)]
pub struct LayerRoots(PathBuf);

impl LayerRoots {
    /// The directory in the state of a program, whose root this is.
    #[must_use]
    pub fn of(root: &Path) -> Self {
        Self(root.join("mounted-layers"))
    }

    /// Records a directory with layers, durably. `tree` is the name of their trees.
    ///
    /// # Errors
    /// The link cannot be made.
    pub fn record(&self, layers: &Path, tree: &str) -> io::Result<()> {
        for number in 0_u32.. {
            let link = self.0.join(format!("{tree}.{number}"));
            match std::fs::read_link(&link) {
                Ok(recorded) if recorded == layers => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    std::fs::create_dir_all(&self.0)?;
                    match std::os::unix::fs::symlink(layers, &link) {
                        // Another process records a directory.
                        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                        made => made?,
                    }
                    return File::open(&self.0)?.sync_all();
                }
                Err(error) => return Err(named(&link, &error)),
            }
        }
        Ok(())
    }

    /// Returns the recorded directories, each with the name of its trees.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn all(&self) -> io::Result<Vec<(PathBuf, String)>> {
        let entries = match std::fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|error| named(&self.0, &error))?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let link = entry?.path();
            let tree = link.file_stem().and_then(OsStr::to_str).unwrap_or_default().to_owned();
            found.push((std::fs::read_link(&link).map_err(|error| named(&link, &error))?, tree));
        }
        found.sort();
        Ok(found)
    }
}

/// Returns true if a process in another mount namespace can see mounts that this process makes below a directory: the mount that the
/// directory is on is shared, and no slave of another one.
///
/// # Errors
/// The mounts cannot be read.
pub fn is_shared(directory: &Path) -> io::Result<bool> {
    let directory = std::fs::canonicalize(directory)?;
    let mounts = mounts_lenient()?;
    let longest = mounts.iter().filter(|mount| directory.starts_with(&mount.target));
    // Of several mounts at one path, the last one is seen.
    let last = longest.max_by_key(|mount| mount.target.as_os_str().len());
    Ok(last.is_some_and(|mount| mount.is_shared))
}

/// Makes the link under the name [`NEW`].
fn make_link(directory: &OwnedFd) -> io::Result<()> {
    match rustix::fs::symlinkat(TREE, directory, NEW) {
        // An earlier attempt made it.
        Err(Errno::EXIST) if rustix::fs::readlinkat(directory, NEW, Vec::new()).is_ok() => Ok(()),
        made => Ok(made?),
    }
}

/// Returns the security context of the files next to a layer, where SELinux is in use.
fn security_context(directory: &Path) -> Option<String> {
    if !Path::new("/sys/fs/selinux/enforce").exists() {
        return None;
    }
    let mut value = vec![0; 512];
    let length = rustix::fs::lgetxattr(directory, "security.selinux", &mut value[..]).ok()?;
    let text = String::from_utf8(value[..length].to_vec()).ok()?;
    Some(text.trim_end_matches('\0').to_owned())
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|error| named(path, &io::Error::from(error)))
}

/// Returns the error for a part of a layer that cannot be opened. A missing one is damage.
fn missing_or_failed(path: &Path, error: &io::Error) -> LayerError {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => LayerError::Damaged(named(path, error)),
        _ => LayerError::Failed(named(path, error)),
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
