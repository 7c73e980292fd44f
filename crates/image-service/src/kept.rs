//! Kept blobs, in both directions: [`Keep`] writes a blob into the store while its bytes are hashed; [`KeptBlob`] reads
//! a blob from the store instead of the registry. A written blob is finished only after its bytes are verified. A blob
//! that is read is verified by its reader, and dropped if it is damaged. Called by layer jobs and their sources.

use base::lock::Mutex;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use cri_api::{Error, Kind, Result};
use oci::{Descriptor, Digest, Verifier};
use store::{BlobIngest, NewBlob, Store, StoreError};

use crate::background::Background;
use crate::error;
use crate::hashing::Tee;
use crate::origin::Origin;
use crate::resume;
use crate::shared::Shared;
use crate::source::{Chunks, Source};

/// Size of the pieces in which a kept blob is read, in bytes.
const PIECE: usize = 256 << 10;

/// A blob on its way into the store, in the hands of whichever thread hashes it.
#[derive(Clone)]
pub(crate) struct Keep {
    shared: Arc<Shared>,
    digest: Digest,
    origin: String,
    /// Guards the file. An error ends the writing and is kept until it is reported.
    file: Arc<Mutex<Option<std::result::Result<BlobIngest, StoreError>>>>,
}

impl Keep {
    /// Begins a file for this blob, where the engine keeps blobs and the store has not got it.
    pub(crate) async fn start(shared: &Arc<Shared>, descriptor: &Descriptor, origin: &Origin) -> Result<Option<Self>> {
        if !shared.options.keep_blobs {
            return Ok(None);
        }
        let (store, Descriptor { digest, size, .. }) = (shared.store.clone(), descriptor.clone());
        let begin = move || store.new_blob(&digest, size).map_err(|e| error::from_store(store.root(), &e));
        let file = shared.background.run(begin).await?;
        Ok(file.map(|file| Self {
            shared: Arc::clone(shared),
            digest: descriptor.digest.clone(),
            origin: origin.to_string(),
            file: Arc::new(Mutex::new(Some(Ok(file)))),
        }))
    }

    /// Takes the bytes, in order.
    pub(crate) fn tee(&self) -> Tee {
        let file = Arc::clone(&self.file);
        Box::new(move |bytes| {
            let mut file = file.lock();
            let error = match &mut *file {
                Some(Ok(file)) => file.write(bytes).err(),
                _ => None,
            };
            if let Some(error) = error {
                *file = Some(Err(error));
            }
        })
    }

    /// The blob, whose bytes were found to be the right ones. Nothing where it is the tar stream itself, which the store
    /// can always build again.
    pub(crate) async fn finish(self, diff_id: &Digest) -> Result<Option<Arc<NewBlob>>> {
        let (file, store) = (Arc::clone(&self.file), self.shared.store.clone());
        let (is_stream, origin) = (*diff_id == self.digest, self.origin.clone());
        let finish = move || {
            let file = file.lock().take();
            let finished = match file {
                Some(Ok(file)) if !is_stream => file.finish().map(|blob| Some(Arc::new(outliving(blob, &origin)))),
                Some(Ok(_)) | None => Ok(None),
                Some(Err(error)) => Err(error),
            };
            finished.map_err(|e| error::from_store(store.root(), &e))
        };
        self.shared.background.run(finish).await
    }
}

/// From now on, a blob that is worth it outlives the process.
fn outliving(mut blob: NewBlob, origin: &str) -> NewBlob {
    if blob.size() >= resume::LEAST
        && let Err(error) = blob.note_whole(origin)
    {
        tracing::debug!(%error, blob = %blob.digest(), "cannot keep it for a later pull");
    }
    blob
}

impl Drop for Keep {
    fn drop(&mut self) {
        // The file of a blob that came to nothing is deleted; not here, which may be an async thread.
        if Arc::strong_count(&self.file) == 1
            && let Some(file) = self.file.lock().take()
        {
            drop(self.shared.background.start(move || drop(file)));
        }
    }
}

/// A blob out of the store, and the registry for where it cannot be read to its end.
pub(crate) struct KeptBlob {
    background: Background,
    descriptor: Descriptor,
    file: Arc<File>,
    at: u64,
    beyond: Arc<dyn Source>,
    failed: bool,
    instead: Option<Box<dyn Chunks>>,
}

impl KeptBlob {
    /// Returns the blob if the store has it, the caller may use it, and it is intact. The blob is read once to check
    /// that, so that a damaged one is dropped, and kept again when it is fetched from the registry.
    pub(crate) async fn find(shared: &Arc<Shared>, descriptor: &Descriptor, beyond: &Arc<dyn Source>) -> Option<Self> {
        let (store, digest) = (shared.store.clone(), descriptor.digest.clone());
        let is_there = shared.background.start(move || matches!(store.open_blob(&digest), Ok(Some(_)))).await;
        let access = shared.known.access_to_blob(beyond.origin(), &descriptor.digest);
        if !is_there.unwrap_or_default() || !shared.may_use(beyond.as_ref(), access, descriptor).await {
            return None;
        }
        let (store, wanted) = (shared.store.clone(), descriptor.clone());
        let open = move || good_blob(&store, &wanted, &|| false).map_err(|e| error::from_store(store.root(), &e));
        let file = match shared.background.run(open).await {
            Ok(file) => file?,
            // The registry has it as well.
            Err(error) => {
                tracing::warn!(%error, blob = %descriptor.digest, "cannot use the kept blob");
                return None;
            }
        };
        tracing::info!(blob = %descriptor.digest, "unpack the kept blob");
        Some(Self {
            background: shared.background.clone(),
            descriptor: descriptor.clone(),
            file: Arc::new(file),
            at: 0,
            beyond: Arc::clone(beyond),
            failed: false,
            instead: None,
        })
    }
}

/// The file of a kept blob, if it has the bytes that it should have. One that has others is dropped. Blocks; answers nothing
/// where it was given up.
pub(crate) fn good_blob(
    store: &Store,
    descriptor: &Descriptor,
    cancelled: &dyn Fn() -> bool,
) -> std::result::Result<Option<File>, StoreError> {
    let Descriptor { digest, size, .. } = descriptor;
    let Some((file, _)) = store.open_blob(digest)? else { return Ok(None) };
    let mut verifier = Verifier::new(digest.clone(), *size);
    let mut buffer = vec![0; PIECE];
    let verdict = loop {
        if cancelled() {
            return Ok(None);
        }
        match (&file).read(&mut buffer) {
            Ok(0) => break verifier.finish().map(drop).map_err(|error| error.to_string()),
            Ok(length) => {
                if let Err(error) = verifier.update(&buffer[..length]) {
                    break Err(error.to_string());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Err(error.to_string()),
        }
    };
    match verdict {
        Ok(()) => Ok(Some(file)),
        Err(error) => {
            tracing::warn!(error, blob = %digest, "kept blob is damaged: drop it");
            store.drop_blob(digest)?;
            Ok(None)
        }
    }
}

#[async_trait]
impl Chunks for KeptBlob {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        if self.failed && self.instead.is_none() {
            self.instead = Some(self.beyond.blob(&self.descriptor).await?);
        }
        if let Some(instead) = &mut self.instead {
            return instead.next().await;
        }
        if self.at >= self.descriptor.size {
            return Ok(None);
        }
        let (file, at, left) = (Arc::clone(&self.file), self.at, self.descriptor.size - self.at);
        let read = move || {
            let mut bytes = vec![0; usize::try_from(left).unwrap_or(PIECE).min(PIECE)];
            let done = file.read_exact_at(&mut bytes, at);
            // The registry is asked then.
            done.map_err(|error| Error::new(Kind::DataLoss, format!("read a kept blob: {error}")))?;
            Ok(Bytes::from(bytes))
        };
        let bytes = self.background.run(read).await?;
        self.at += bytes.len() as u64;
        Ok(Some(bytes))
    }

    fn start_over(&mut self, why: &Error) -> Result<()> {
        match &mut self.instead {
            Some(instead) => instead.start_over(why),
            None => {
                self.failed = true;
                Ok(())
            }
        }
    }

    fn is_remote(&self) -> bool {
        false
    }
}
