//! Uploads of images: of an OCI layout, directory or tar, with everything that its manifest or index names, and of a manifest
//! alone whose blobs the registry has. A blob is looked for first, then mounted from the repositories that may have it, then
//! uploaded; the manifest comes last. Bytes of a layout are verified by the registry. Called by the binary.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use cri_api::engine::ImageDocuments;
use cri_api::{Error, Kind, LayerState, ProgressSink, PullEvent, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use oci::{Descriptor, Digest, Document, Manifest, Reference, RegistryAuth};
use registry::{BlobUpload, Repository};
use tokio_util::task::TaskTracker;

use crate::background::Background;
use crate::error::{self, damaged, invalid};
use crate::options::Limits;
use crate::registries::Registries;
use crate::source::{Chunks, Source};
use crate::transfer::archive::{Archive, ArchiveSource};
use crate::transfer::input::Copying;
use crate::transfer::layout;

/// Blobs that are uploaded side by side.
const SIDE_BY_SIDE: usize = 4;
/// An index within an index within an index is deep enough.
const MAX_DEPTH: usize = 4;

/// An upload.
#[derive(Clone, Debug)]
pub struct Upload {
    /// The name that the image gets. With a digest it must be the image's own.
    pub to: Reference,
    /// The credential.
    pub auth: Option<RegistryAuth>,
    /// Repositories of the same registry that may have the blobs.
    pub mount_from: Vec<String>,
    /// Receives progress.
    pub progress: ProgressSink,
}

/// An image that a registry has now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// Digest of the manifest or index.
    pub digest: Digest,
    /// Blobs that were uploaded; the registry had the others.
    pub uploaded: u64,
    /// Bytes of them.
    pub bytes: u64,
}

impl Registries {
    /// Uploads an image of an OCI layout: the one of this name or tag, or the only one.
    ///
    /// # Errors
    /// Those of the registry; `NotFound` where the layout has no such image.
    pub async fn push_layout(&self, layout: &Path, name: Option<&str>, upload: &Upload) -> Result<Pushed> {
        let background = Background::new(TaskTracker::new());
        let (path, name) = (layout.to_owned(), name.map(str::to_owned));
        let open = move || {
            let spool = || Err(invalid("a compressed layout cannot be pushed: import it first"));
            let copying = Copying { spool: &spool, limits: &Limits::default(), cancelled: &|| false };
            let archive = Archive::open(&path, &copying)?;
            let root = layout::entry(&archive, name.as_deref())?;
            Ok((Arc::new(archive), root))
        };
        let (archive, root) = background.run(open).await?;
        let source: Arc<dyn Source> =
            Arc::new(ArchiveSource { archive, background, elsewhere: HashMap::new(), made_up: HashMap::new() });
        let push = self.start(upload)?;
        push.check_name(&root.digest)?;
        let mut documents = Vec::new();
        push.collect(&*source, root, &mut documents).await?;
        push.report(&documents);
        for (_, document) in &documents {
            if let Document::Manifest(manifest) = document {
                push.blobs(&source, manifest).await?;
            }
        }
        // What an index names comes before the index.
        let last = documents.len().saturating_sub(1);
        for (at, (raw, _)) in documents.iter().enumerate() {
            let (media_type, bytes) = (raw.media_type.as_str(), raw.bytes.clone());
            push.manifest(&raw.digest, media_type, bytes, at == last).await?;
        }
        let (raw, _) = documents.last().ok_or_else(|| damaged("the layout has no manifest"))?;
        Ok(push.done(raw.digest.clone()))
    }

    /// Uploads an image by its manifest alone, where the registry has its blobs or can mount them. `None`: it lacks some.
    ///
    /// # Errors
    /// Those of the registry.
    pub async fn push_documents(&self, documents: &ImageDocuments, upload: &Upload) -> Result<Option<Pushed>> {
        let ImageDocuments { manifest: bytes, manifest_media_type: media_type, config, .. } = documents;
        let digest = Digest::sha256(bytes);
        let Ok(Document::Manifest(manifest)) = Document::parse(bytes, Some(media_type)) else {
            return Err(damaged(format!("the manifest of image {} cannot be read", documents.id)));
        };
        let push = self.start(upload)?;
        push.check_name(&digest)?;
        for layer in wanted(&manifest.layers) {
            if !push.has(layer).await? {
                return Ok(None);
            }
        }
        let layers = wanted(&manifest.layers);
        let sizes = layers.iter().map(|layer| (layer.digest.clone(), layer.size)).collect();
        upload.progress.report(PullEvent::Resolved { digest: digest.clone(), layers: sizes });
        for layer in layers {
            push.state(layer, LayerState::Present);
        }
        if !push.has(&manifest.config).await? {
            let bytes = Bytes::from(config.clone());
            let open = Arc::new(move || -> registry::UploadStream {
                let bytes = bytes.clone();
                Box::pin(futures::stream::once(async move { Ok(bytes) }))
            });
            push.upload(&manifest.config, open).await?;
        }
        push.manifest(&digest, media_type, Bytes::from(bytes.clone()), true).await?;
        Ok(Some(push.done(digest)))
    }

    fn start<'a>(&self, upload: &'a Upload) -> Result<RunningPush<'a>> {
        let repository = self.repository(&upload.to, upload.auth.clone())?;
        Ok(RunningPush { repository, upload, uploaded: AtomicU64::default(), bytes: AtomicU64::default() })
    }
}

/// An upload that goes on.
struct RunningPush<'a> {
    repository: Repository,
    upload: &'a Upload,
    uploaded: AtomicU64,
    bytes: AtomicU64,
}

impl RunningPush<'_> {
    /// A name with a digest is for nothing else.
    fn check_name(&self, digest: &Digest) -> Result<()> {
        match self.upload.to.digest() {
            Some(wanted) if wanted != digest => {
                Err(invalid(format!("{} has another digest than the image, which has {digest}", self.upload.to)))
            }
            _ => Ok(()),
        }
    }

    /// The manifests and indexes below a descriptor, the lowest first.
    async fn collect(
        &self,
        source: &dyn Source,
        root: Descriptor,
        documents: &mut Vec<(crate::source::RawDocument, Document)>,
    ) -> Result<()> {
        // Each with its depth; a document is put before those that name it.
        let mut open = vec![(root, 0)];
        let mut seen = BTreeSet::new();
        let mut found = Vec::new();
        while let Some((descriptor, depth)) = open.pop() {
            if !seen.insert(descriptor.digest.clone()) {
                continue;
            }
            let raw = source.document(&descriptor).await?;
            let document =
                Document::parse(&raw.bytes, Some(&raw.media_type).filter(|t| !t.is_empty()).map(String::as_str))
                    .map_err(|error| damaged(format!("{}: {error}", raw.digest)))?;
            if let Document::Index(index) = &document {
                if depth >= MAX_DEPTH {
                    return Err(invalid(format!("index {} is nested too deeply", raw.digest)));
                }
                open.extend(index.manifests.iter().map(|manifest| (manifest.clone(), depth + 1)));
            }
            found.push((depth, raw, document));
        }
        found.sort_by_key(|(depth, ..)| std::cmp::Reverse(*depth));
        documents.extend(found.into_iter().map(|(_, raw, document)| (typed(raw, &document), document)));
        Ok(())
    }

    fn report(&self, documents: &[(crate::source::RawDocument, Document)]) {
        let Some((root, _)) = documents.last() else { return };
        let layers = documents.iter().flat_map(|(_, document)| match document {
            Document::Manifest(manifest) => wanted(&manifest.layers),
            Document::Index(_) => Vec::new(),
        });
        let layers = layers.map(|layer| (layer.digest.clone(), layer.size)).collect();
        self.upload.progress.report(PullEvent::Resolved { digest: root.digest.clone(), layers });
    }

    fn state(&self, blob: &Descriptor, state: LayerState) {
        // A config is no layer, and too small for an eye.
        if oci::media_type::is_config(&blob.media_type) {
            return;
        }
        self.upload.progress.report(PullEvent::Layer { digest: blob.digest.clone(), state });
    }

    /// Everything that a manifest names.
    async fn blobs(&self, source: &Arc<dyn Source>, manifest: &Manifest) -> Result<()> {
        let blobs = wanted(manifest.layers.iter().chain([&manifest.config]));
        let uploads = blobs.into_iter().map(|blob| self.blob(source, blob));
        futures::stream::iter(uploads).buffer_unordered(SIDE_BY_SIDE).try_collect().await
    }

    async fn blob(&self, source: &Arc<dyn Source>, blob: &Descriptor) -> Result<()> {
        if self.has(blob).await? {
            self.state(blob, LayerState::Present);
            return Ok(());
        }
        self.state(blob, LayerState::Fetching);
        let (source, descriptor, progress) = (Arc::clone(source), blob.clone(), self.upload.progress.clone());
        let open = Arc::new(move || chunks(Arc::clone(&source), descriptor.clone(), progress.clone()));
        self.upload(blob, open).await?;
        self.state(blob, LayerState::Done);
        Ok(())
    }

    /// Returns true if the repository has a blob, or has got it from another one.
    async fn has(&self, blob: &Descriptor) -> Result<bool> {
        if self.repository.has_blob(blob).await {
            return Ok(true);
        }
        for from in &self.upload.mount_from {
            if self.repository.mount_blob(&blob.digest, from).await.map_err(|e| error::from_registry(&e))? {
                tracing::debug!(blob = %blob.digest, from, "mounted");
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn upload(
        &self,
        blob: &Descriptor,
        open: Arc<dyn Fn() -> registry::UploadStream + Send + Sync>,
    ) -> Result<()> {
        let upload = BlobUpload { descriptor: blob.clone(), open };
        self.repository.upload_blob(&upload).await.map_err(|e| error::from_registry(&e))?;
        self.uploaded.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(blob.size, Ordering::Relaxed);
        Ok(())
    }

    /// A manifest or index: the image itself under its tag, everything else by digest.
    async fn manifest(&self, digest: &Digest, media_type: &str, bytes: Bytes, is_image: bool) -> Result<()> {
        let tag = self.repository.reference().tag().filter(|_| is_image && self.upload.to.digest().is_none());
        let name = tag.map_or_else(|| digest.to_string(), str::to_owned);
        let pushed = self.repository.put_manifest(&name, media_type, bytes).await;
        let pushed = pushed.map_err(|e| error::from_registry(&e))?;
        if pushed == *digest {
            return Ok(());
        }
        Err(Error::new(Kind::DataLoss, format!("manifest {digest} has digest {pushed}")))
    }

    fn done(&self, digest: Digest) -> Pushed {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Pushed { digest, uploaded: count(&self.uploaded), bytes: count(&self.bytes) }
    }
}

/// Descriptors of what a registry takes, each once: what lies elsewhere by its own word stays there.
fn wanted<'a>(blobs: impl IntoIterator<Item = &'a Descriptor>) -> Vec<&'a Descriptor> {
    let mut seen = BTreeSet::new();
    blobs.into_iter().filter(|blob| blob.urls.is_empty() && seen.insert(&blob.digest)).collect()
}

/// Fills in the document's own media type, or the usual one if neither the document nor the source gives one.
fn typed(raw: crate::source::RawDocument, document: &Document) -> crate::source::RawDocument {
    let (own, usual) = match document {
        Document::Manifest(manifest) => (&manifest.media_type, oci::media_type::OCI_MANIFEST),
        Document::Index(index) => (&index.media_type, oci::media_type::OCI_INDEX),
    };
    let media_type = match (own, raw.media_type.is_empty()) {
        (Some(own), _) => own.clone(),
        (None, false) => raw.media_type,
        (None, true) => usual.to_owned(),
    };
    crate::source::RawDocument { media_type, ..raw }
}

/// The bytes of a blob of a layout, with their progress.
fn chunks(source: Arc<dyn Source>, blob: Descriptor, progress: ProgressSink) -> registry::UploadStream {
    enum BlobReading {
        Closed(Arc<dyn Source>),
        Open(Box<dyn Chunks>, u64),
    }
    let next = move |state: BlobReading| {
        let (blob, progress) = (blob.clone(), progress.clone());
        async move {
            let (mut chunks, done) = match state {
                BlobReading::Closed(source) => (source.blob(&blob).await.map_err(std::io::Error::other)?, 0),
                BlobReading::Open(chunks, done) => (chunks, done),
            };
            let Some(bytes) = chunks.next().await.map_err(std::io::Error::other)? else { return Ok(None) };
            let done = done + bytes.len() as u64;
            progress.report(PullEvent::Bytes { digest: blob.digest.clone(), done });
            Ok(Some((bytes, BlobReading::Open(chunks, done))))
        }
    };
    Box::pin(futures::stream::try_unfold(BlobReading::Closed(source), next))
}
