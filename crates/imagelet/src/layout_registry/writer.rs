//! [`Writer`]: uploads into an OCI layout. Bytes are written to files in a separate directory of the layout, and renamed to a blob's name
//! if they have its digest; `index.json` is replaced as a whole. One process writes a layout at a time. Blocking: callers put it on
//! blocking threads. Knows no HTTP. Called by [`super::upload`].

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base::lock::Mutex;
use oci::{Algorithm, Descriptor, Digest, Document, Hasher, media_type};
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

use super::layout::{Layout, LayoutError, MAX_DOCUMENT, REF_NAME, place};

/// Directory of incomplete uploads, within the layout's own.
const UPLOADS: &str = ".uploads";
/// Maximum number of active uploads; for a new one, the longest idle one is removed.
const MAX_UPLOADS: usize = 128;
/// An upload that is idle for this long is removed.
const IDLE: Duration = Duration::from_secs(3600);
/// Maximum size of a blob.
const MAX_BLOB: u64 = 64 << 30;

/// Uploads into a layout.
#[derive(Debug)]
pub(super) struct Writer {
    layout: Layout,
    directory: PathBuf,
    uploads: Mutex<HashMap<String, Upload>>,
    /// Guards `index.json`.
    index: Mutex<()>,
    /// Locked for the lifetime of this value.
    _lock: File,
}

/// Failure of a write.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error("write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{} is written by another process", path.display())]
    InUse { path: PathBuf },
    #[error("{0}")]
    Content(String),
}

/// An upload in progress. Its file is removed when the value is dropped.
#[derive(Debug)]
pub(super) struct Upload {
    path: PathBuf,
    file: File,
    hasher: Hasher,
    pub(super) size: u64,
    touched: Instant,
}

impl Upload {
    /// Appends bytes.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        if self.size + bytes.len() as u64 > MAX_BLOB {
            return Err(WriteError::Content(format!("a blob has at most {MAX_BLOB} bytes")));
        }
        self.file.write_all(bytes).map_err(|source| WriteError::Write { path: self.path.clone(), source })?;
        self.hasher.update(bytes);
        self.size += bytes.len() as u64;
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // After a commit, this name no longer exists.
        let _ = fs::remove_file(&self.path);
    }
}

/// Creates an empty layout where none exists.
pub(super) fn make(directory: &Path) -> Result<(), WriteError> {
    let failed = |source| WriteError::Write { path: directory.to_owned(), source };
    DirBuilder::new().recursive(true).create(directory).map_err(failed)?;
    let mut entries = fs::read_dir(directory).map_err(failed)?;
    if entries.any(|entry| entry.is_ok_and(|entry| entry.file_name() != UPLOADS)) {
        return Ok(());
    }
    let index = json!({ "schemaVersion": 2, "mediaType": media_type::OCI_INDEX, "manifests": [] });
    fs::write(directory.join("index.json"), index.to_string()).map_err(failed)?;
    // Written last: this file makes the directory a layout.
    fs::write(directory.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).map_err(failed)
}

impl Writer {
    /// Opens a layout for writing, and removes incomplete uploads of an earlier process.
    pub(super) fn open(layout: Layout) -> Result<Self, WriteError> {
        let directory = layout.directory().join(UPLOADS);
        let failed = |source| WriteError::Write { path: directory.clone(), source };
        match DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
        // Through a link, files of another directory would be removed.
        if !fs::symlink_metadata(&directory).map_err(failed)?.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        let lock = File::open(&directory).map_err(failed)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(WriteError::InUse { path: layout.directory().to_owned() });
        }
        for entry in fs::read_dir(&directory).map_err(failed)?.flatten() {
            fs::remove_file(entry.path()).map_err(failed)?;
        }
        let (uploads, index) = (Mutex::default(), Mutex::default());
        Ok(Self { layout, directory, uploads, index, _lock: lock })
    }

    /// Begins an upload.
    pub(super) fn begin(&self) -> Result<(String, Upload), WriteError> {
        let now = Instant::now();
        let mut uploads = self.uploads.lock();
        uploads.retain(|_, upload| now.duration_since(upload.touched) < IDLE);
        if uploads.len() >= MAX_UPLOADS
            && let Some(oldest) = uploads.iter().min_by_key(|(_, upload)| upload.touched).map(|(id, _)| id.clone())
        {
            uploads.remove(&oldest);
        }
        drop(uploads);
        let id = format!("{:016x}{:016x}", random(), random());
        let path = self.directory.join(&id);
        let file = File::create_new(&path).map_err(|source| WriteError::Write { path: path.clone(), source })?;
        Ok((id, Upload { path, file, hasher: Algorithm::Sha256.hasher(), size: 0, touched: now }))
    }

    /// Takes ownership of an upload; `None` if it does not exist, or another request has it.
    pub(super) fn take(&self, id: &str) -> Option<Upload> {
        self.uploads.lock().remove(id)
    }

    /// Returns an upload, for the next request.
    pub(super) fn give_back(&self, id: &str, mut upload: Upload) {
        upload.touched = Instant::now();
        self.uploads.lock().insert(id.to_owned(), upload);
    }

    /// Returns the size of an upload in bytes.
    pub(super) fn size(&self, id: &str) -> Option<u64> {
        self.uploads.lock().get(id).map(|upload| upload.size)
    }

    /// Returns true if the layout has a blob.
    pub(super) fn has(&self, digest: &Digest) -> Result<bool, WriteError> {
        Ok(self.layout.blob(digest)?.is_some())
    }

    /// Commits an upload as the blob of this digest.
    ///
    /// # Errors
    /// [`WriteError::Content`], if the content has another digest; the upload is removed then.
    pub(super) fn commit(&self, mut upload: Upload, digest: &Digest) -> Result<(), WriteError> {
        let got = if digest.algorithm() == Algorithm::Sha256 {
            std::mem::replace(&mut upload.hasher, Algorithm::Sha256.hasher()).finish()
        } else {
            let failed = |source| WriteError::Write { path: upload.path.clone(), source };
            hash(&mut File::open(&upload.path).map_err(failed)?, digest.algorithm()).map_err(failed)?
        };
        if got != *digest {
            return Err(WriteError::Content(format!("the bytes have digest {got}, not {digest}")));
        }
        let path = upload.path.clone();
        let sync = upload.file.sync_all();
        sync.and_then(|()| self.place_blob(&path, digest)).map_err(|source| WriteError::Write { path, source })
    }

    /// Moves a complete file to a blob's path. Links that lead out of the layout are not followed.
    fn place_blob(&self, from: &Path, digest: &Digest) -> io::Result<()> {
        let name = format!("blobs/{}", digest.algorithm().as_str());
        fs::create_dir_all(self.layout.directory().join(&name))?;
        let blobs = self.layout.open_file(&name)?;
        rustix::fs::renameat(rustix::fs::CWD, from, &blobs, digest.hex())?;
        blobs.sync_all()
    }

    /// Stores a manifest or index for a repository, under a tag or by its digest. Everything that it references must exist.
    ///
    /// # Errors
    /// [`WriteError::Content`].
    pub(super) fn put_manifest(
        &self,
        repository: &str,
        reference: &str,
        content_type: &str,
        bytes: &[u8],
    ) -> Result<Digest, PutError> {
        let invalid = |why: String| PutError::Invalid(why);
        let declared = Some(content_type).filter(|text| !text.is_empty());
        let document = Document::parse(bytes, declared).map_err(|error| invalid(error.to_string()))?;
        let (digest, tag) = match reference.parse::<Digest>() {
            Ok(digest) if digest.algorithm().digest(bytes) != digest => {
                return Err(PutError::Digest(format!("the manifest does not have digest {digest}")));
            }
            Ok(digest) => (digest, None),
            Err(_) => (Digest::sha256(bytes), Some(reference)),
        };
        let name = self.name(repository, tag, &digest)?;
        let (named, children, media_type) = match &document {
            Document::Manifest(manifest) => {
                let blobs = manifest.layers.iter().filter(|layer| layer.urls.is_empty()).chain([&manifest.config]);
                (blobs.cloned().collect::<Vec<_>>(), Vec::new(), media_type::OCI_MANIFEST)
            }
            Document::Index(index) => {
                let children = index.manifests.iter().map(|child| child.digest.clone()).collect();
                (index.manifests.clone(), children, media_type::OCI_INDEX)
            }
        };
        for Descriptor { digest, .. } in &named {
            if self.layout.blob(digest).map_err(WriteError::from)?.is_none() {
                return Err(PutError::Unknown(format!("{digest} is not in the layout: it comes before what names it")));
            }
        }
        let media_type = declared.map_or_else(|| media_type.to_owned(), media_type::essence);
        let (_, mut upload) = self.begin()?;
        upload.append(bytes)?;
        self.commit(upload, &digest)?;
        let entry = json!({
            "mediaType": media_type, "digest": digest, "size": bytes.len(), "annotations": { REF_NAME: name },
        });
        self.change_index(|entries| {
            entries.retain(|old| match place(old, self.layout.repository()) {
                Some((of, Some(old_tag))) => of != repository || tag != Some(old_tag.as_str()),
                // Content that is reachable by another name needs no entry by digest.
                Some((of, None)) => of != repository || (old.digest != digest && !children.contains(&old.digest)),
                None => true,
            });
            let is_found = tag.is_none()
                && entries.iter().any(|old| {
                    old.digest == digest && place(old, self.layout.repository()).is_some_and(|(of, _)| of == repository)
                });
            (!is_found).then_some(entry)
        })?;
        Ok(digest)
    }

    /// Removes a tag, or every tag of a digest. The content stays. Returns false if there is none.
    pub(super) fn delete_manifest(&self, repository: &str, reference: &str) -> Result<bool, WriteError> {
        let digest = reference.parse::<Digest>().ok();
        let mut found = false;
        self.change_index(|entries| {
            let before = entries.len();
            entries.retain(|old| match place(old, self.layout.repository()) {
                Some((of, tag)) if of == repository => match &digest {
                    Some(digest) => old.digest != *digest,
                    None => tag.as_deref() != Some(reference),
                },
                _ => true,
            });
            found = entries.len() < before;
            None
        })?;
        Ok(found)
    }

    /// Returns the name of a repository's tag or digest in `index.json`, from which the same tag or digest is read again.
    fn name(&self, repository: &str, tag: Option<&str>, digest: &Digest) -> Result<String, PutError> {
        let rest = tag.map_or_else(|| format!("@{digest}"), |tag| format!(":{tag}"));
        let wanted = Some((repository.to_owned(), tag.map(str::to_owned)));
        for name in [format!("{repository}{rest}"), format!("docker.io/{repository}{rest}")] {
            let mut entry = Descriptor::new("", digest.clone(), 0);
            entry.annotations.insert(REF_NAME.to_owned(), name.clone());
            if place(&entry, self.layout.repository()) == wanted {
                return Ok(name);
            }
        }
        Err(PutError::Name(format!("{repository}{rest} is no name of an image")))
    }

    /// Replaces `index.json`: `change` decides which entries stay, and may return a new one. Other members stay.
    fn change_index(&self, change: impl FnOnce(&mut Vec<Descriptor>) -> Option<Value>) -> Result<(), WriteError> {
        let _guard = self.index.lock();
        let path = self.layout.directory().join("index.json");
        let text = self.layout.read("index.json", MAX_DOCUMENT)?;
        let failed = |source| WriteError::Write { path: path.clone(), source };
        let mut index: Value = oci::json::from_slice(&text).map_err(|e| failed(io::Error::other(e)))?;
        let entries = index.get("manifests").filter(|entries| !entries.is_null()).cloned().unwrap_or_else(|| json!([]));
        let mut entries: Vec<Descriptor> = serde_json::from_value(entries).map_err(|e| failed(io::Error::other(e)))?;
        let new = change(&mut entries);
        let mut entries: Vec<Value> = entries.into_iter().map(|entry| json!(entry)).collect();
        entries.extend(new);
        if let Some(object) = index.as_object_mut() {
            object.insert("manifests".to_owned(), Value::Array(entries));
        }
        let text = index.to_string();
        if text.len() as u64 > MAX_DOCUMENT {
            return Err(WriteError::Content(format!("index.json would be longer than {MAX_DOCUMENT} bytes")));
        }
        let draft = self.directory.join("index.json");
        let write = || {
            let mut file = File::create(&draft)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&draft, &path)?;
            File::open(self.layout.directory())?.sync_all()
        };
        write().map_err(failed)
    }
}

/// Reason for which a manifest is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum PutError {
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    Digest(String),
    #[error("{0}")]
    Name(String),
    #[error("{0}")]
    Unknown(String),
}

fn hash(file: &mut File, algorithm: Algorithm) -> io::Result<Digest> {
    let (mut hasher, mut buffer) = (algorithm.hasher(), vec![0; 256 << 10]);
    loop {
        match io::Read::read(file, &mut buffer)? {
            0 => return Ok(hasher.finish()),
            length => hasher.update(&buffer[..length]),
        }
    }
}

/// Returns an unpredictable number.
fn random() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::hash::RandomState::new().build_hasher().finish()
}
