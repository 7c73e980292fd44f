//! Copies of a layer, for another stack or in another shape: its tar stream is built from its recipe and unpacked again, without
//! the network. Commits call it when a layer that depends on the layers below is present for another stack only, and conversions
//! do.

use std::io::{self, BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use oci::{Digest, Hasher};

use crate::disk::layer::Shape;
use crate::error::StoreError;
use crate::ingest::Ingests;
use crate::ingest::layer::UnpackedLayer;
use crate::options::Cancelled;
use crate::recipe::{self, RecipeError};
use crate::unpack::UnpackError;

impl Ingests {
    /// Unpacks the layer in this directory, which has the shape `from`, once more. Returns `None` when its stream cannot be
    /// rebuilt as it was: then the layer has to be fetched again.
    pub(crate) fn copy_of(
        self: &Arc<Self>,
        directory: &OwnedFd,
        from: Shape,
        to: Shape,
        diff_id: &Digest,
        cancelled: Cancelled<'_>,
    ) -> Result<Option<Arc<UnpackedLayer>>, StoreError> {
        let ingest = self.new_layer(to)?;
        let (reader, mut writer) =
            io::pipe().map_err(|source| StoreError::io("open a pipe for", &self.catalog.disk.layout.path, source))?;
        let (rebuilt, unpacked, got) = std::thread::scope(|scope| {
            let rebuild = move || from.rebuild(directory.as_fd(), &mut writer);
            let rebuilding = std::thread::Builder::new().name("store-rebuild".into()).spawn_scoped(scope, rebuild);
            let rebuilding = rebuilding.map_err(|source| {
                StoreError::io("start a thread to copy a layer of", &self.catalog.disk.layout.path, source)
            })?;
            let tar = HashingReader { reader, hasher: diff_id.algorithm().hasher() };
            let mut tar = BufReader::with_capacity(recipe::BUFFER, tar);
            let unpacked = ingest.unpack(&mut tar, cancelled);
            let HashingReader { reader, hasher } = tar.into_inner();
            // Without a reader the other side ends, if it has not yet.
            drop(reader);
            Ok::<_, StoreError>((rebuilding.join(), unpacked, hasher.finish()))
        })?;
        match (rebuilt, unpacked) {
            // The stream is as it was, or the unpacking failed for reasons of its own.
            (Ok(Ok(())), Ok(layer)) if got == *diff_id => Ok(Some(Arc::new(layer))),
            (_, Err(error @ (UnpackError::Io { .. } | UnpackError::Cancelled))) => {
                Err(StoreError::Copy { diff_id: diff_id.clone(), source: error })
            }
            // The layer is not at fault.
            (Ok(Err(error @ RecipeError::Read { .. })), _) if !error.is_of_the_medium() => {
                Err(StoreError::Export { diff_id: diff_id.clone(), source: error })
            }
            (rebuilt, unpacked) => {
                tracing::warn!(
                    %diff_id, %got, ?rebuilt, unpacked = ?unpacked.err(),
                    "the layer cannot be copied; it has to be fetched again"
                );
                Ok(None)
            }
        }
    }
}

/// Hashes what passes.
struct HashingReader<R> {
    reader: R,
    hasher: Hasher,
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.reader.read(buffer)?;
        self.hasher.update(&buffer[..length]);
        Ok(length)
    }
}
