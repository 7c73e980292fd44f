//! How a store is opened: durability, the format of new layers, and the limits of one layer. Plain values.

use std::path::PathBuf;

use base::layer_mount::LayerRoots;

use crate::unpack::Limits;

/// Called often by long work, which ends soon after it returns true.
pub type Cancelled<'a> = &'a (dyn Fn() -> bool + Sync);

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

/// The format of layers that are unpacked from now on. Existing layers keep theirs: a store holds both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LayerFormat {
    /// The best format for this machine, as the store finds out: [`crate::Store::new_layers`] says what that is.
    #[default]
    Auto,
    /// An EROFS file.
    Erofs,
    /// An EROFS file whose tree lies in a directory of it, for stores whose layers stay mounted ([`base::layer_mount`]): if the file is
    /// not mounted, the layer is missing and never empty.
    NestedErofs,
    /// A directory tree.
    Dir,
}

/// Settings of a store that is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// The command of this process; written into the lock file for people who wait for the lock.
    pub command: Option<String>,
    /// A digest of the settings by which this process pulls; written into the lock file, so that another process knows whether a
    /// pull of this process is as good as its own.
    pub settings: Option<String>,
    /// The admin socket of this process; written into the lock file for other processes to find.
    pub agent_socket: Option<PathBuf>,
    /// How sure a commit is.
    pub durability: Durability,
    /// Limits of one layer.
    pub limits: Limits,
    /// True if owners, devices and `trusted.*` attributes can be set. `None`: they can as user 0 of the machine.
    pub privileged: Option<bool>,
    /// Size of the file that is given up when the disk is full, so that removal always works.
    pub reserve_bytes: u64,
    /// The format of new layers.
    pub layer_format: LayerFormat,
    /// A name for this boot of the machine. `None`: the kernel's id. Unsynced writes are trusted within one boot.
    pub boot: Option<String>,
    /// Where the directories of layers are recorded that the host mounts, if the view for podman may have layers that are EROFS files:
    /// [`base::layer_mount`]. `None`: it has directories alone.
    pub mounted_view: Option<LayerRoots>,
    /// Since when (nanoseconds since 1970) leftovers of interrupted pulls are kept for later pulls. `None`: nothing is kept.
    pub unfinished_since: Option<i64>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            command: None,
            settings: None,
            agent_socket: None,
            durability: Durability::Full,
            limits: Limits::default(),
            privileged: None,
            reserve_bytes: 8 << 20,
            layer_format: LayerFormat::Auto,
            boot: None,
            mounted_view: None,
            unfinished_since: None,
        }
    }
}
