//! [`WholeLayer`]: a layer that was unpacked, whose blob was verified, and that no image took. Its record names the blob and the
//! diff id. Before a pull gets it, its own stream is rebuilt and compared: with that diff id, and with the content of its
//! directory, entry by entry. Used by layer jobs of the image service.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use oci::Digest;
use rustix::fs::AtFlags;

use crate::content::left::{self, LAYER, LayerNote, LeftKind, NEW, note_name};
use crate::content::private::Private;
use crate::disk::layout;
use crate::error::StoreError;
use crate::ingest::Ingests;
use crate::ingest::layer::UnpackedLayer;
use crate::maintenance::shared_files;
use crate::options::Cancelled;
use crate::records::entries::LayerStats;
use crate::unpack::PathLookup;

/// A leftover layer, owned by this value alone. It is deleted with the value.
pub struct WholeLayer {
    ingests: Arc<Ingests>,
    private: Private,
    record: LayerNote,
}

impl WholeLayer {
    /// Takes the layer that was unpacked from this blob and left by an interrupted pull, if it has a diff ID of this
    /// algorithm and `may` accepts its origin.
    pub(crate) fn take_left(
        ingests: &Arc<Ingests>,
        blob: &Digest,
        size: u64,
        algorithm: oci::Algorithm,
        may: &dyn Fn(&str) -> bool,
    ) -> Option<Self> {
        let fits = |what: &LeftKind| match what {
            LeftKind::Layer(record)
                if record.blob == *blob
                    && record.size == size
                    && record.diff_id.algorithm() == algorithm
                    && may(&record.origin) =>
            {
                Some(record.clone())
            }
            _ => None,
        };
        let (private, record) = ingests.content.take_left(fits)?;
        Some(Self { ingests: Arc::clone(ingests), private, record })
    }

    /// Digest of its tar stream.
    #[must_use]
    pub fn diff_id(&self) -> &Digest {
        &self.record.diff_id
    }

    /// Returns the layer and its diff id, if it is unchanged. Reads all of it. `None`: it has changed, and is deleted; or
    /// `cancelled` returned true, and it is left for another time.
    ///
    /// # Errors
    /// The disk refused something.
    pub fn verify(self, cancelled: Cancelled<'_>) -> Result<Option<(UnpackedLayer, Digest)>, StoreError> {
        let Self { ingests, private, record } = self;
        let LayerNote { diff_id, shape, stats, .. } = &record;
        // Data that can be read may only be in memory.
        if ingests.catalog.disk.has_failed_to_write() {
            return Ok(None);
        }
        let directory = match layout::open_directory(&ingests.catalog.disk.layout.ingest, &private.name()) {
            Ok(directory) => directory,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(private.failed("open", error)),
        };
        shared_files::remove_list(directory.as_fd())
            .map_err(|error| private.failed("remove the list of files of", error))?;
        let copy = match ingests.compare_with_own_stream(&directory, diff_id, *shape, cancelled) {
            Ok(Some(copy)) => copy,
            Ok(None) => {
                put_back(private)?;
                return Ok(None);
            }
            Err(why) => {
                tracing::warn!(blob = %record.blob, reason = %why, "a layer that a pull left is not what it was: it is fetched again");
                return Ok(None);
            }
        };
        // A commit may have begun to change directories for its stack, and the note of it been lost with the power.
        let failed = |error| private.failed("look at", error);
        let deferred = shape.deferred(directory.as_fd(), ingests.layers.privileged).map_err(failed)?;
        for path in &copy.outcome.implicit_dirs {
            let mut found = shape.find(directory.as_fd(), path).map_err(failed)?;
            if let (PathLookup::Here(attributes), Some(deferred)) = (&mut found, &deferred) {
                deferred.complete(path, attributes);
            }
            if !matches!(found, PathLookup::Here(attributes) if attributes.is_plain(0, 0)) {
                tracing::info!(blob = %record.blob, "a layer that a pull left was made fit for a stack: it is fetched again");
                return Ok(None);
            }
        }
        let stats = LayerStats { disk_bytes: stats.disk_bytes, inodes: stats.inodes, ..copy.stats() };
        let (outcome, shape, diff_id) = (copy.outcome.clone(), *shape, diff_id.clone());
        Ok(Some((UnpackedLayer::again(&ingests, private, outcome, stats, shape), diff_id)))
    }
}

impl UnpackedLayer {
    /// Notes its diff id, and that its blob was the right one: from now on a stop of the process does not lose it. This holds for
    /// layers whose stream can be rebuilt. `origin` says where the blob was fetched from.
    ///
    /// # Errors
    /// The record could not be written. The layer is as good as before.
    pub fn note_whole(&self, blob: &Digest, size: u64, diff_id: &Digest, origin: &str) -> Result<(), StoreError> {
        let stats = self.stats();
        if self.ingests.content.unfinished_since.is_none()
            || !stats.exact
            || self.ingests.catalog.disk.has_failed_to_write()
        {
            return Ok(());
        }
        let (blob, diff_id, origin) = (blob.clone(), diff_id.clone(), origin.to_owned());
        self.with_unpatched(|private| {
            let inode = rustix::fs::statat(
                &private.content().catalog.disk.layout.ingest,
                private.name(),
                AtFlags::SYMLINK_NOFOLLOW,
            );
            let inode = inode.map_err(|error| private.failed("look at", error.into()))?.st_ino;
            write(private, &LayerNote { blob, size, diff_id, shape: self.shape, stats, inode, origin })?;
            private.set_note(LAYER);
            Ok(())
        })
    }

    /// Leaves it for a later pull, if it was noted as whole and no commit began with it. It is deleted otherwise.
    pub fn leave(self) {
        let private = self.into_unpatched();
        let Some(private) = private.filter(|private| private.note() == Some(LAYER)) else { return };
        if let Err(error) = put_back(private) {
            tracing::debug!(%error, "a layer that is whole could not be left");
        }
    }
}

/// Leaves it for another time.
fn put_back(private: Private) -> Result<(), StoreError> {
    let content = private.content();
    let directory = content.catalog.disk.layout.path.join(layout::INGEST);
    let left = left::find_layer(&directory, private.number).map_err(|error| private.failed("look at", error))?;
    content.leave(private, left);
    Ok(())
}

fn write(private: &Private, record: &LayerNote) -> Result<(), StoreError> {
    let text = serde_json::to_vec(record).expect("plain values become JSON");
    let (name, new) = (note_name(private.number, LAYER), note_name(private.number, NEW));
    let ingest = &private.content().catalog.disk.layout.ingest;
    layout::write_whole(ingest, &name, &new, &text).map_err(|error| private.failed("write the record of", error))
}
