//! [`Mounts`]: which images are mounted where. A record counts only while the mount exists.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::lock::Mutex;
use base::mount::{mounts_lenient, topmost};
use cri_api::engine::ImageMount;
use oci::Digest;
use rustix::fs::AtFlags;

use super::kernel_features::KernelFeatures;
use super::own_mounts::is_ours;
use super::points::Points;
use super::{MountError, OverlayAssembly, absolute, read_mounts, unmount};
use crate::disk::layer::LayerId;
use crate::disk::layout::EMPTY;
use crate::error::StoreError;
use crate::layers::Layers;
use crate::podman::view::View;
use crate::records::catalog::Catalog;
use crate::records::entries::{ImageRecord, MountEntry};
use crate::records::tables::{Records, RecordsMut};
use crate::view::Stack;

/// A use of layers that keeps them.
#[derive(Clone, Debug)]
pub(crate) enum LayerUse {
    /// A mount of ours.
    Mount(MountEntry),
    /// A container or an image of podman.
    Podman(Vec<LayerId>),
}

impl LayerUse {
    pub(crate) fn layers(&self) -> &[LayerId] {
        match self {
            Self::Mount(entry) => &entry.layers,
            Self::Podman(layers) => layers,
        }
    }

    /// Returns true for a mount of this image.
    pub(crate) fn shows(&self, id: &Digest) -> bool {
        matches!(self, Self::Mount(entry) if entry.image == *id)
    }
}

/// The mounted images of a store.
#[derive(Debug)]
pub(crate) struct Mounts {
    catalog: Arc<Catalog>,
    layers: Arc<Layers>,
    /// The view that podman reads.
    pub(crate) view: Arc<View>,
    /// Guards the table of mounts: no image is mounted while it is being removed.
    pub(crate) mounting: Mutex<()>,
}

impl Mounts {
    pub(crate) fn new(layers: &Arc<Layers>, view: &Arc<View>) -> Self {
        let (catalog, layers, view) = (Arc::clone(&layers.catalog), Arc::clone(layers), Arc::clone(view));
        Self { catalog, layers, view, mounting: Mutex::default() }
    }
}

impl Mounts {
    /// Mounts an image, and keeps it from being removed while it is mounted.
    pub(crate) fn mount_image(
        &self,
        image: &ImageRecord,
        target: &Path,
        writable: Option<&Path>,
    ) -> Result<(), MountError> {
        let target = absolute(target)?;
        let _mounting = self.mounting.lock();
        if topmost(&read_mounts()?, &target).is_some_and(is_ours) {
            return Err(MountError::AlreadyMounted { target });
        }
        let layers = self.layers.image_layers(image)?;
        let stack = Stack::of(image.id.clone(), &layers, self.layers.privileged);
        let layers = self.layers.lower_layers(&layers);
        let points = Points::of(&self.catalog.disk.layout.path);
        self.sweep_points();
        // Recorded first: an unrecorded mount could lose its layers.
        self.catalog.db.write(|transaction| {
            let entry = transaction.image(&image.id)?.ok_or_else(|| StoreError::NotFound(image.id.clone()))?;
            let entry = MountEntry { image: image.id.clone(), layers: entry.layers, writable: writable.is_some() };
            transaction.put_mount(&target, &entry)
        })?;
        let compose = Some((self.catalog.disk.layout.path.as_path(), &stack));
        let userxattr = !self.layers.privileged;
        let assembly = OverlayAssembly { userxattr, points: Some(&points), compose, ways: KernelFeatures::default() };
        let mounted = assembly.mount(&layers, &target, writable);
        if mounted.is_err() {
            self.forget_mount(&target)?;
        }
        mounted
    }

    /// Takes an image's mount away.
    pub(crate) fn unmount_image(&self, target: &Path) -> Result<(), MountError> {
        let target = absolute(target)?;
        let _mounting = self.mounting.lock();
        self.sweep_points();
        unmount(&target)?;
        let recorded = self.catalog.db.read(|records| records.mounts())?;
        self.forget_mount(&target)?;
        let layers = recorded.into_iter().filter(|(known, _)| *known == target).flat_map(|(_, entry)| entry.layers);
        Ok(self.sweep_unmounted(layers.collect())?)
    }

    /// The images that are mounted, by place. Forgets what is not mounted any more.
    pub(crate) fn mounts(&self) -> Result<Vec<ImageMount>, StoreError> {
        let _mounting = self.mounting.lock();
        self.sweep_points();
        let live = self.live_mounts()?;
        let recorded = self.catalog.db.read(|records| records.mounts())?;
        for (target, _) in &recorded {
            if !live.iter().any(|(known, _)| known == target) {
                self.forget_mount(target)?;
            }
        }
        Ok(live
            .into_iter()
            .map(|(target, entry)| ImageMount { target, image: entry.image.to_string(), writable: entry.writable })
            .collect())
    }
}

impl Mounts {
    /// Removes the private mounts of a process that was killed while it mounted something. The caller holds `mounting`, or no
    /// other user of the store exists.
    pub(crate) fn sweep_points(&self) {
        if let Err(error) = Points::of(&self.catalog.disk.layout.path).sweep() {
            tracing::warn!(%error, root = %self.catalog.disk.layout.path.display(), "what an earlier process was mounting stays");
        }
    }

    /// Returns the mounts that are recorded and still there.
    pub(crate) fn live_mounts(&self) -> Result<Vec<(PathBuf, MountEntry)>, StoreError> {
        let mut recorded = self.catalog.db.read(|records| records.mounts())?;
        if recorded.is_empty() {
            return Ok(recorded);
        }
        let mounts = mounts_lenient().map_err(|source| StoreError::io("read", "/proc/self/mountinfo", source))?;
        // Another mount may lie over ours, so it need not be the topmost one.
        recorded.retain(|(target, _)| mounts.iter().any(|mount| mount.target == *target && is_ours(mount)));
        Ok(recorded)
    }

    /// Returns every use of layers, and where: existing mounts of ours, and podman's uses of the view.
    pub(crate) fn uses(&self) -> Result<Vec<(PathBuf, LayerUse)>, StoreError> {
        let mounts = self.live_mounts()?.into_iter().map(|(target, entry)| (target, LayerUse::Mount(entry)));
        let podman = self.view.users()?.into_iter().map(|user| (user.place, LayerUse::Podman(user.layers)));
        Ok(mounts.chain(podman).collect())
    }

    /// Deletes what only a mount has kept: layers that were found damaged meanwhile, and the empty directory that fills
    /// up a mount of one layer.
    fn sweep_unmounted(&self, layers: BTreeSet<LayerId>) -> Result<(), StoreError> {
        let uses = self.uses()?;
        let mut left = Vec::new();
        for id in layers.into_iter().filter(|id| !uses.iter().any(|(_, used)| used.layers().contains(id))) {
            let entry = self.catalog.db.read(|records| records.layer(id))?;
            if entry.is_none_or(|entry| entry.damaged) {
                left.push(id);
            } else if let Err(error) =
                rustix::fs::unlinkat(&self.catalog.disk.layout.layers, format!("{id}/{EMPTY}"), AtFlags::REMOVEDIR)
                && error != rustix::io::Errno::NOENT
            {
                tracing::debug!(%error, layer = %id, "the empty directory next to the layer stays");
            }
        }
        self.layers.delete_directories(&left)
    }

    fn forget_mount(&self, target: &Path) -> Result<(), StoreError> {
        self.catalog.db.write(|transaction| transaction.delete_mount(target))
    }
}
