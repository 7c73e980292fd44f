//! Kept blobs: [`BlobKeeper`] writes a blob into the store while its bytes are hashed; [`KeptBlob`] reads a blob from the store
//! instead of the source. A written blob is finished only after its bytes are verified. A stored blob is verified before it is
//! used, and dropped if it is damaged.

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

use super::{Chunks, Source, may_use, resume};
use crate::background::Background;
use crate::content::Content;
use crate::hashing::Tee;
use crate::origin::Origin;

/// Size of the pieces in which a kept blob is read, in bytes.
const PIECE: usize = 256 << 10;

/// A blob that is being written into the store by the thread that hashes it.
#[derive(Clone)]
pub(crate) struct BlobKeeper {
    content: Arc<Content>,
    digest: Digest,
    origin: String,
    /// Guards the file. The first error ends the writing; `finish` reports it.
    file: Arc<Mutex<Option<std::result::Result<BlobIngest, StoreError>>>>,
}

impl BlobKeeper {
    /// Begins a file for this blob if blobs are kept and the store does not have it.
    pub(crate) async fn start(
        content: &Arc<Content>,
        descriptor: &Descriptor,
        origin: &Origin,
    ) -> Result<Option<Self>> {
        if !content.keeps_blobs {
            return Ok(None);
        }
        let Descriptor { digest, size, .. } = descriptor.clone();
        let file = content.on_store(move |store| store.new_blob(&digest, size)).await?;
        Ok(file.map(|file| Self {
            content: Arc::clone(content),
            digest: descriptor.digest.clone(),
            origin: origin.to_string(),
            file: Arc::new(Mutex::new(Some(Ok(file)))),
        }))
    }

    /// Returns the function that receives the bytes in order.
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

    /// Finishes the blob after its bytes were verified. Returns `None` if the blob is the tar stream itself, which the store can
    /// always rebuild.
    pub(crate) async fn finish(self, diff_id: &Digest) -> Result<Option<Arc<NewBlob>>> {
        let (file, origin) = (Arc::clone(&self.file), self.origin.clone());
        let is_stream = *diff_id == self.digest;
        let finish = move |_: &Store| {
            let file = file.lock().take();
            match file {
                Some(Ok(file)) if !is_stream => file.finish().map(|blob| Some(Arc::new(persisted(blob, &origin)))),
                Some(Ok(_)) | None => Ok(None),
                Some(Err(error)) => Err(error),
            }
        };
        self.content.on_store(finish).await
    }
}

/// Records a large blob so that it outlives the process.
fn persisted(mut blob: NewBlob, origin: &str) -> NewBlob {
    if blob.size() >= resume::LEAST
        && let Err(error) = blob.note_whole(origin)
    {
        tracing::debug!(%error, blob = %blob.digest(), "cannot keep the blob for a later pull");
    }
    blob
}

impl Drop for BlobKeeper {
    fn drop(&mut self) {
        // Deletes the file of an unfinished blob on a blocking thread: this may be an async one.
        if Arc::strong_count(&self.file) == 1
            && let Some(file) = self.file.lock().take()
        {
            drop(self.content.background.start(move || drop(file)));
        }
    }
}

/// A blob in the store; the source replaces it if it cannot be read to its end.
pub(crate) struct KeptBlob {
    background: Background,
    descriptor: Descriptor,
    file: Arc<File>,
    at: u64,
    source: Arc<dyn Source>,
    failed: bool,
    replacement: Option<Box<dyn Chunks>>,
}

impl KeptBlob {
    /// Returns the blob if the store has it, the pull may use it, and it is intact. The check reads the whole blob, so that a
    /// damaged one is dropped, and kept again when it is fetched from the source.
    pub(crate) async fn find(content: &Content, descriptor: &Descriptor, source: &Arc<dyn Source>) -> Option<Self> {
        let (store, digest) = (content.store.clone(), descriptor.digest.clone());
        let is_present = content.background.start(move || matches!(store.open_blob(&digest), Ok(Some(_)))).await;
        let access = content.hints.access_to_blob(source.origin(), &descriptor.digest);
        if !is_present.unwrap_or_default() || !may_use(content.sharing, source.as_ref(), access, descriptor).await {
            return None;
        }
        let wanted = descriptor.clone();
        let file = match content.on_store(move |store| good_blob(store, &wanted, &|| false)).await {
            Ok(file) => file?,
            // The source has it as well.
            Err(error) => {
                tracing::warn!(%error, blob = %descriptor.digest, "cannot use the kept blob");
                return None;
            }
        };
        tracing::info!(blob = %descriptor.digest, "unpack the kept blob");
        Some(Self {
            background: content.background.clone(),
            descriptor: descriptor.clone(),
            file: Arc::new(file),
            at: 0,
            source: Arc::clone(source),
            failed: false,
            replacement: None,
        })
    }
}

/// Returns the file of a kept blob if its bytes match its digest; a damaged blob is dropped. Blocks. Returns `None` if it was
/// cancelled.
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
        if self.failed && self.replacement.is_none() {
            self.replacement = Some(self.source.blob(&self.descriptor).await?);
        }
        if let Some(replacement) = &mut self.replacement {
            return replacement.next().await;
        }
        if self.at >= self.descriptor.size {
            return Ok(None);
        }
        let (file, at, left) = (Arc::clone(&self.file), self.at, self.descriptor.size - self.at);
        let read = move || {
            let mut bytes = vec![0; usize::try_from(left).unwrap_or(PIECE).min(PIECE)];
            let done = file.read_exact_at(&mut bytes, at);
            // The caller starts over with the source.
            done.map_err(|error| Error::new(Kind::DataLoss, format!("read a kept blob: {error}")))?;
            Ok(Bytes::from(bytes))
        };
        let bytes = self.background.run(read).await?;
        self.at += bytes.len() as u64;
        Ok(Some(bytes))
    }

    fn start_over(&mut self, why: &Error) -> Result<()> {
        match &mut self.replacement {
            Some(replacement) => replacement.start_over(why),
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
