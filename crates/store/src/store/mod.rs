//! [`Store`], the public face, and the parts that it is composed of. The files of this folder hold its public operations; code that
//! several of them need belongs to a part. Each part knows the parts above it in this list, and none below:
//!
//! | part | has | locks, in the order in which they are taken |
//! |---|---|---|
//! | [`Catalog`] and its disk | database, directories, lock file | `deleting` (2), the database's handle (5) |
//! | [`Content`] | private names, kept blobs, left work | `busy` (6), `left` (6) |
//! | [`Layers`] | committed layers, which are damaged | `damaged` (6) |
//! | [`Mounts`] | mounted images | `mounting` (3) |
//! | [`View`](crate::podman::view::View) | what podman sees | `state`, after the leases |
//! | [`Maintenance`] | leases, the number of the next layer | `commit` (1), `leases` (4) |
//! | [`Ingests`] | how layers are unpacked | none |
//!
//! A thread that holds a lock takes only locks with a greater number; those of one number are never held together. What is a value's
//! own (the layers of a lease, the place and the numbers of an unpacked layer) is locked last, with nothing taken below it but
//! locks of number 6.

pub(crate) mod accounting;
mod blobs;
mod durability;
mod file_system;
mod images;
mod layers;
mod leftovers;
mod open;
mod podman_users;
pub(crate) mod podman_view;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use cri_api::engine::ImageMount;
use rustix::fs::{Mode, OFlags};

use crate::content::Content;
use crate::error::StoreError;
use crate::ingest::Ingests;
use crate::ingest::choice::NewLayers;
use crate::ingest::layer::LayerIngest;
use crate::layers::Layers;
use crate::maintenance::Lease;
use crate::maintenance::Maintenance;
use crate::mount::MountError;
use crate::mount::mounts::Mounts;
use crate::records::catalog::Catalog;
use crate::records::entries::{ImageRecord, Layer};

/// A store of images and layers. Clones share its parts; dropping the last one releases the lock. Every operation blocks.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) content: Arc<Content>,
    pub(crate) layers: Arc<Layers>,
    pub(crate) mounts: Arc<Mounts>,
    pub(crate) maintenance: Arc<Maintenance>,
    pub(crate) ingests: Arc<Ingests>,
    new_layers: NewLayers,
}

impl Store {
    /// Where the store is.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.catalog.disk.layout.path
    }

    /// Returns true if owners, devices and privileged attributes are set when layers are unpacked.
    #[must_use]
    pub fn is_privileged(&self) -> bool {
        self.layers.privileged
    }

    /// The format of new layers, and why.
    #[must_use]
    pub fn new_layers(&self) -> NewLayers {
        self.ingests.new_layers(self.new_layers)
    }

    /// Returns a new lease. A pull takes one before it looks up layers, and keeps it until its image is committed.
    #[must_use]
    pub fn lease(&self) -> Lease {
        Lease::new(Arc::clone(&self.maintenance))
    }

    /// The layers of an image, lowest first, as often as the image has them.
    ///
    /// # Errors
    /// The database could not be read, or the image is not there any more.
    pub fn image_layers(&self, image: &ImageRecord) -> Result<Vec<Layer>, StoreError> {
        self.layers.image_layers(image)
    }

    /// A private directory for one layer. It vanishes with the value.
    ///
    /// # Errors
    /// The directory could not be made.
    pub fn new_layer(&self, lease: &Lease) -> Result<LayerIngest, StoreError> {
        // The lease says that a pull is going on; a layer that is not yet in the store needs no protection.
        let _ = lease;
        self.maintenance.tidy_up();
        self.catalog.db.check_identity()?;
        self.ingests.new_layer(self.ingests.shape())
    }

    /// Mounts an image, and keeps it from being removed while it is mounted.
    ///
    /// # Errors
    /// See [`MountError`].
    pub fn mount_image(&self, image: &ImageRecord, target: &Path, writable: Option<&Path>) -> Result<(), MountError> {
        self.mounts.mount_image(image, target, writable)
    }

    /// Takes an image's mount away.
    ///
    /// # Errors
    /// See [`MountError`].
    pub fn unmount_image(&self, target: &Path) -> Result<(), MountError> {
        self.mounts.unmount_image(target)
    }

    /// The images that are mounted, by place. Forgets what is not mounted any more.
    ///
    /// # Errors
    /// The database or the table of mounts could not be read.
    pub fn mounts(&self) -> Result<Vec<ImageMount>, StoreError> {
        self.mounts.mounts()
    }

    /// Returns true if the store was not closed cleanly before it was opened, and its latest writes have not been checked since.
    #[must_use]
    pub fn was_unclean(&self) -> bool {
        self.catalog.lock.unclean_since().is_some()
    }

    /// Creates an empty file in the store that has no name: it is removed when it is closed.
    ///
    /// # Errors
    /// The file could not be made.
    pub fn unnamed_file(&self) -> Result<File, StoreError> {
        let (private, layout) = (self.content.private(), &self.catalog.disk.layout);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(&layout.ingest, private.name(), flags, Mode::RUSR | Mode::WUSR);
        // Dropping the private place removes its name.
        file.map(File::from).map_err(|error| {
            StoreError::io("create a file", layout.ingest_path(private.number), std::io::Error::from(error))
        })
    }
}
