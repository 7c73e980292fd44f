//! [`Archive`]: a directory or a tar file with an image in it, as a [`Source`] of documents and blobs. It finds members
//! by name and reads them in pieces; [`super::layout`] and [`super::docker`] interpret them. A directory is untrusted,
//! as a tar file is: no link in it leads to a file outside of it.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use cri_api::{Error, Result};
use oci::{Descriptor, Digest, Reference};

use super::input::{self, Copying, Opened};
use super::tar::{self, Member};
use super::within::{leads_out, open_within};
use crate::background::Background;
use crate::error::{self, damaged};
use crate::origin::Origin;
use crate::source::{Chunks, RawDocument, Source};

/// Documents of an archive may be this large.
const MAX_DOCUMENT: u64 = 4 << 20;
/// Layers are read in pieces of this size.
const PIECE: u64 = 1 << 20;
/// So many links may lead to a member.
const MAX_LINKS: usize = 8;

/// Bytes in a file.
#[derive(Clone, Debug)]
pub(crate) struct Extent {
    file: Arc<File>,
    offset: u64,
    pub(crate) size: u64,
}

/// An image that an archive lists, and the parts of it that are not found by their digests.
#[derive(Clone, Debug)]
pub(crate) struct ArchivedImage {
    pub(crate) descriptor: Descriptor,
    pub(crate) names: BTreeSet<Reference>,
    /// Layers under names of their own, by digest.
    pub(crate) layers: HashMap<Digest, Extent>,
    /// Documents that the archive lacks, by digest.
    pub(crate) documents: HashMap<Digest, Bytes>,
    /// The manifest is the archive's own, so that its digest is worth recording.
    pub(crate) has_manifest: bool,
}

enum ArchiveForm {
    Directory(File),
    Tar { file: Arc<File>, members: HashMap<String, Member> },
}

/// A place with members. Its calls block, but for those of [`Source`].
pub(crate) struct Archive {
    path: PathBuf,
    form: ArchiveForm,
}

impl Archive {
    /// Opens a directory or a tar file, which may be compressed or come out of a pipe.
    pub(crate) fn open(path: &Path, copying: &Copying<'_>) -> Result<Self> {
        let form = match input::open(path, copying)? {
            Opened::Directory(file) => ArchiveForm::Directory(file),
            Opened::File(file) => {
                let members = tar::index(&file).map_err(|error| error::from_file("read", path, &error))?;
                ArchiveForm::Tar { file: Arc::new(file), members }
            }
        };
        Ok(Self { path: path.to_owned(), form })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A member by name, if there is one.
    pub(crate) fn find(&self, name: &str) -> Result<Option<Extent>> {
        match &self.form {
            ArchiveForm::Directory(directory) => {
                let Some(name) = tar::normal(name) else { return Ok(None) };
                let path = self.path.join(&name);
                match open_within(directory, &name) {
                    Ok(file) => {
                        let metadata = file.metadata().map_err(|e| error::from_file("read", &path, &e))?;
                        if !metadata.is_file() {
                            return Err(error::invalid(format!("{} is not a file", path.display())));
                        }
                        Ok(Some(Extent { file: Arc::new(file), offset: 0, size: metadata.len() }))
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(error) if leads_out(&error) => Err(error::invalid(format!("read {}: {error}", path.display()))),
                    Err(error) => Err(error::from_file("read", &path, &error)),
                }
            }
            ArchiveForm::Tar { file, members } => {
                let Some(mut name) = tar::normal(name) else { return Ok(None) };
                for _ in 0..MAX_LINKS {
                    match members.get(&name) {
                        Some(Member::File { offset, size }) => {
                            return Ok(Some(Extent { file: Arc::clone(file), offset: *offset, size: *size }));
                        }
                        Some(Member::Link(target)) => name.clone_from(target),
                        None => return Ok(None),
                    }
                }
                Err(damaged(format!("{}: too many links lead to {name}", self.path.display())))
            }
        }
    }

    /// A member that must be there.
    pub(crate) fn get(&self, name: &str) -> Result<Extent> {
        let missing = || damaged(format!("{} has no {name}", self.path.display()));
        self.find(name)?.ok_or_else(missing)
    }

    /// A blob, by the name that it has in an OCI layout, or in a directory of skopeo's.
    pub(crate) fn blob(&self, digest: &Digest) -> Result<Extent> {
        let name = blob_name(digest);
        for name in [name.as_str(), digest.hex(), &format!("{}.manifest.json", digest.hex())] {
            if let Some(extent) = self.find(name)? {
                return Ok(extent);
            }
        }
        Err(damaged(format!("{} has no {name}", self.path.display())))
    }

    /// A small member, whole.
    pub(crate) fn read(&self, extent: &Extent, name: &str) -> Result<Vec<u8>> {
        if extent.size > MAX_DOCUMENT {
            let size = extent.size;
            return Err(damaged(format!(
                "{}: {name} has {size} bytes, {MAX_DOCUMENT} are allowed",
                self.path.display()
            )));
        }
        extent.read(0, extent.size).map_err(|e| error::from_file("read", &self.path.join(name), &e))
    }

    /// A small blob, whole and verified.
    pub(crate) fn verified(&self, descriptor: &Descriptor) -> Result<Vec<u8>> {
        let name = blob_name(&descriptor.digest);
        let bytes = self.read(&self.blob(&descriptor.digest)?, &name)?;
        let mut verifier = oci::Verifier::new(descriptor.digest.clone(), descriptor.size);
        let verdict = verifier.update(&bytes).and_then(|()| verifier.finish());
        verdict.map_err(|e| damaged(format!("{}: {name}: {e}", self.path.display())))?;
        Ok(bytes)
    }
}

impl Extent {
    pub(crate) fn read(&self, from: u64, length: u64) -> io::Result<Vec<u8>> {
        let length = length.min(self.size.saturating_sub(from));
        let mut bytes = vec![0; usize::try_from(length).map_err(|_| io::ErrorKind::OutOfMemory)?];
        self.file.read_exact_at(&mut bytes, self.offset + from)?;
        Ok(bytes)
    }

    /// The digest of all its bytes.
    pub(crate) fn digest(&self) -> io::Result<Digest> {
        let mut hasher = oci::Algorithm::Sha256.hasher();
        let mut at = 0;
        while at < self.size {
            let bytes = self.read(at, PIECE)?;
            hasher.update(&bytes);
            at += bytes.len() as u64;
        }
        Ok(hasher.finish())
    }
}

/// The name of a blob in an OCI layout.
pub(crate) fn blob_name(digest: &Digest) -> String {
    format!("blobs/{}/{}", digest.algorithm().as_str(), digest.hex())
}

/// An archive, opened for the pipeline. Blobs that do not lie where an OCI layout has them are named in `elsewhere`, and
/// documents that were made up for them in `made_up`.
pub(crate) struct ArchiveSource {
    pub(crate) archive: Arc<Archive>,
    pub(crate) background: Background,
    pub(crate) elsewhere: HashMap<Digest, Extent>,
    pub(crate) made_up: HashMap<Digest, Bytes>,
}

#[async_trait]
impl Source for ArchiveSource {
    fn origin(&self) -> &Origin {
        &Origin::Archive
    }

    /// By its name and length: what it holds is seen when it is read.
    async fn has(&self, descriptor: &Descriptor) -> bool {
        self.extent(&descriptor.digest).await.is_ok_and(|extent| extent.size == descriptor.size)
    }

    async fn document(&self, descriptor: &Descriptor) -> Result<RawDocument> {
        let bytes = self.small_blob(descriptor, MAX_DOCUMENT).await?;
        Ok(RawDocument { bytes, media_type: descriptor.media_type.clone(), digest: descriptor.digest.clone() })
    }

    async fn small_blob(&self, descriptor: &Descriptor, limit: u64) -> Result<Bytes> {
        if let Some(bytes) = self.made_up.get(&descriptor.digest) {
            return Ok(bytes.clone());
        }
        if descriptor.size > limit {
            return Err(damaged(format!(
                "blob {} has {} bytes, {limit} are allowed",
                descriptor.digest, descriptor.size
            )));
        }
        let (archive, descriptor) = (Arc::clone(&self.archive), descriptor.clone());
        self.background.run(move || archive.verified(&descriptor).map(Bytes::from)).await
    }

    async fn blob(&self, descriptor: &Descriptor) -> Result<Box<dyn Chunks>> {
        self.blob_from(descriptor, 0).await
    }

    async fn blob_from(&self, descriptor: &Descriptor, from: u64) -> Result<Box<dyn Chunks>> {
        let extent = self.extent(&descriptor.digest).await?;
        let path = self.archive.path().to_owned();
        Ok(Box::new(Pieces { extent, at: from, path, background: self.background.clone() }))
    }
}

impl ArchiveSource {
    async fn extent(&self, blob: &Digest) -> Result<Extent> {
        if let Some(extent) = self.elsewhere.get(blob) {
            return Ok(extent.clone());
        }
        let (archive, blob) = (Arc::clone(&self.archive), blob.clone());
        self.background.run(move || archive.blob(&blob)).await
    }
}

struct Pieces {
    extent: Extent,
    at: u64,
    path: PathBuf,
    background: Background,
}

#[async_trait]
impl Chunks for Pieces {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        if self.at >= self.extent.size {
            return Ok(None);
        }
        let (extent, at, path) = (self.extent.clone(), self.at, self.path.clone());
        let read = move || extent.read(at, PIECE).map_err(|e| error::from_file("read", &path, &e));
        let bytes = self.background.run(read).await?;
        self.at += bytes.len() as u64;
        Ok(Some(bytes.into()))
    }

    fn start_over(&mut self, why: &Error) -> Result<()> {
        Err(why.clone())
    }

    fn is_remote(&self) -> bool {
        false
    }
}
