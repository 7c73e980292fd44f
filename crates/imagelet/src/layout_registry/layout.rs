//! An OCI layout directory as repositories and tags. Reads `index.json` each time, so that a layout can be filled while it is served; opens
//! blobs by validated digests only. Blocking: callers put it on blocking threads. Knows no HTTP. Called by [`crate::layout_registry`].

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use oci::{Descriptor, Digest, Document, Index, Reference};

/// containerd's annotation: the full name.
const CONTAINERD_NAME: &str = "io.containerd.image.name";
/// The image specification's annotation: a name, or a tag alone.
pub(super) const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// Maximum size of an index or manifest, as the distribution specification suggests.
pub(super) const MAX_DOCUMENT: u64 = 4 << 20;

/// Tags of a repository with their descriptors.
pub(crate) type Tags = BTreeMap<String, Descriptor>;

/// A layout directory.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    directory: PathBuf,
    /// The repository of names that are only a tag.
    repository: Option<String>,
}

/// Reason for which a layout cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LayoutError {
    #[error("{} is no OCI layout: {why}", directory.display())]
    NoLayout { directory: PathBuf, why: String },
    #[error("read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
}

/// An existing blob.
#[derive(Debug)]
pub(crate) struct Blob {
    pub(crate) file: File,
    pub(crate) size: u64,
}

/// A manifest or index.
#[derive(Debug)]
pub(crate) struct ManifestBytes {
    pub(crate) bytes: Vec<u8>,
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
}

impl Layout {
    /// Opens a layout; fails if the directory is none.
    pub(crate) fn open(directory: &Path, repository: Option<String>) -> Result<Self, LayoutError> {
        let layout = Self { directory: directory.to_owned(), repository };
        let no = |why: String| LayoutError::NoLayout { directory: directory.to_owned(), why };
        let bytes = match layout.read("oci-layout", MAX_DOCUMENT) {
            Ok(bytes) => bytes,
            Err(LayoutError::Read { source, .. }) => return Err(no(format!("oci-layout: {source}"))),
            Err(other) => return Err(other),
        };
        let marker: serde_json::Value = oci::json::from_slice(&bytes).map_err(|e| no(format!("oci-layout: {e}")))?;
        match marker.get("imageLayoutVersion").and_then(serde_json::Value::as_str) {
            Some("1.0.0") => {}
            Some(other) => return Err(no(format!("its version is {other:?}, only \"1.0.0\" is known"))),
            None => return Err(no("oci-layout has no imageLayoutVersion".into())),
        }
        layout.repositories()?;
        Ok(layout)
    }

    /// Returns the directory.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the repository of names that are only a tag.
    pub(super) fn repository(&self) -> Option<&str> {
        self.repository.as_deref()
    }

    /// Returns all repositories by name.
    pub(crate) fn repositories(&self) -> Result<BTreeMap<String, Tags>, LayoutError> {
        let bytes = self.read("index.json", MAX_DOCUMENT)?;
        let index: Index = oci::json::from_slice(&bytes).map_err(|e| LayoutError::NoLayout {
            directory: self.directory.clone(),
            why: format!("index.json: {e}"),
        })?;
        let mut repositories: BTreeMap<String, Tags> = BTreeMap::new();
        if let Some(repository) = &self.repository {
            repositories.entry(repository.clone()).or_default();
        }
        for descriptor in index.manifests {
            match place(&descriptor, self.repository.as_deref()) {
                Some((repository, Some(tag))) => {
                    repositories.entry(repository).or_default().insert(tag, descriptor);
                }
                Some((repository, None)) => {
                    repositories.entry(repository).or_default();
                }
                None => {}
            }
        }
        Ok(repositories)
    }

    /// Returns the manifest with this digest; `None` if there is none, or if the blob is no manifest.
    pub(crate) fn manifest(&self, digest: &Digest, media_type: &str) -> Result<Option<ManifestBytes>, LayoutError> {
        let Some(blob) = self.blob(digest)? else { return Ok(None) };
        if blob.size > MAX_DOCUMENT {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        let read = blob.file.take(MAX_DOCUMENT).read_to_end(&mut bytes);
        read.map_err(|source| LayoutError::Read { path: self.blob_path(digest), source })?;
        let declared = (!media_type.is_empty()).then_some(media_type);
        let media_type = match Document::parse(&bytes, declared) {
            Ok(_) if !media_type.is_empty() => media_type.to_owned(),
            Ok(Document::Manifest(manifest)) => {
                manifest.media_type.unwrap_or_else(|| oci::media_type::OCI_MANIFEST.to_owned())
            }
            Ok(Document::Index(index)) => index.media_type.unwrap_or_else(|| oci::media_type::OCI_INDEX.to_owned()),
            Err(_) => return Ok(None),
        };
        Ok(Some(ManifestBytes { bytes, media_type, digest: digest.clone() }))
    }

    /// Opens the blob with this digest.
    pub(crate) fn blob(&self, digest: &Digest) -> Result<Option<Blob>, LayoutError> {
        let path = self.blob_path(digest);
        let error = |source| LayoutError::Read { path: path.clone(), source };
        let file = match self.open_file(&format!("blobs/{}/{}", digest.algorithm().as_str(), digest.hex())) {
            Ok(file) => file,
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(error(source)),
        };
        let metadata = file.metadata().map_err(error)?;
        Ok(metadata.is_file().then_some(Blob { size: metadata.len(), file }))
    }

    fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.directory.join("blobs").join(digest.algorithm().as_str()).join(digest.hex())
    }

    /// Opens a file of the layout, and refuses links that lead out of it: served content is not verified.
    pub(super) fn open_file(&self, name: &str) -> io::Result<File> {
        image_service::open_within(&File::open(&self.directory)?, name)
    }

    pub(super) fn read(&self, name: &str, limit: u64) -> Result<Vec<u8>, LayoutError> {
        let path = self.directory.join(name);
        let mut bytes = Vec::new();
        let read = self.open_file(name).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes));
        match read {
            Ok(_) if bytes.len() as u64 <= limit => Ok(bytes),
            Ok(_) => Err(LayoutError::Read { path, source: io::Error::other(format!("longer than {limit} bytes")) }),
            Err(source) => Err(LayoutError::Read { path, source }),
        }
    }
}

/// Returns repository and tag of an entry of `index.json`. A full name gives its path and tag; the user's own spelling is kept, so that
/// `demo/shell:1.0` is `demo/shell` and `busybox` is not `library/busybox`. A single word is a repository with the tag `latest`, or, with
/// `--repository`, a tag of that repository.
pub(super) fn place(descriptor: &Descriptor, repository: Option<&str>) -> Option<(String, Option<String>)> {
    let name = descriptor.annotations.get(CONTAINERD_NAME).or_else(|| descriptor.annotations.get(REF_NAME))?;
    if let Some(repository) = repository
        && !name.contains(['/', ':', '@'])
    {
        return Some((repository.to_owned(), Some(name.clone())));
    }
    let reference = Reference::parse(name).ok()?.with_default_tag();
    let spelled = oci::trim_tag_and_digest(name).ok()?;
    let path = match spelled.strip_prefix(reference.domain()).and_then(|rest| rest.strip_prefix('/')) {
        Some(path) => path.to_owned(),
        // An official name without its domain keeps the familiar spelling.
        None if reference.path().ends_with(&spelled) => spelled,
        None => reference.path().to_owned(),
    };
    Some((path, reference.tag().map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_give_repository_and_tag() {
        let cases = [
            (REF_NAME, "127.0.0.1:5000/demo/busybox:1.0", None, Some(("demo/busybox", Some("1.0")))),
            (REF_NAME, "demo/shell:1.0", None, Some(("demo/shell", Some("1.0")))),
            (REF_NAME, "busybox:1", None, Some(("busybox", Some("1")))),
            (REF_NAME, "busybox", None, Some(("busybox", Some("latest")))),
            (REF_NAME, "1.0", None, Some(("1.0", Some("latest")))),
            (REF_NAME, "1.0", Some("demo/x"), Some(("demo/x", Some("1.0")))),
            (REF_NAME, "demo/y:2", Some("demo/x"), Some(("demo/y", Some("2")))),
            (CONTAINERD_NAME, "docker.io/library/busybox:1", None, Some(("library/busybox", Some("1")))),
            (CONTAINERD_NAME, "quay.io/a/b", None, Some(("a/b", Some("latest")))),
            (
                CONTAINERD_NAME,
                "quay.io/a/b@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                None,
                Some(("a/b", None)),
            ),
            (REF_NAME, "Not A Name", None, None),
            ("other", "x", None, None),
        ];
        for (key, name, repository, want) in cases {
            let mut descriptor = Descriptor::new("", Digest::sha256(b"x"), 1);
            descriptor.annotations.insert(key.into(), name.into());
            let want = want.map(|(r, t)| (r.to_owned(), t.map(str::to_owned)));
            assert_eq!(place(&descriptor, repository), want, "{name} in {repository:?}");
        }
    }

    #[test]
    fn containerds_name_is_preferred() {
        let mut descriptor = Descriptor::new("", Digest::sha256(b"x"), 1);
        descriptor.annotations.insert(CONTAINERD_NAME.into(), "quay.io/a/b:2".into());
        descriptor.annotations.insert(REF_NAME.into(), "2".into());
        assert_eq!(place(&descriptor, None), Some(("a/b".into(), Some("2".into()))));
    }

    #[test]
    fn what_a_link_leads_to_outside_is_not_served() {
        let top = tempfile::tempdir().expect("temporary directory");
        let (directory, canary) = (top.path().join("layout"), top.path().join("canary"));
        std::fs::create_dir_all(directory.join("blobs/sha256")).expect("made");
        std::fs::write(directory.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).expect("written");
        std::fs::write(directory.join("index.json"), r#"{"schemaVersion":2,"manifests":[]}"#).expect("written");
        std::fs::write(&canary, "canary").expect("written");
        let digest = Digest::sha256(b"canary");
        let blob = directory.join("blobs/sha256").join(digest.hex());
        std::os::unix::fs::symlink(&canary, &blob).expect("linked");
        let layout = Layout::open(&directory, None).expect("a layout");
        let Err(LayoutError::Read { source, .. }) = layout.blob(&digest) else { panic!("it is outside") };
        assert!(source.to_string().contains("leads out of the directory"), "{source}");
        std::fs::remove_file(&blob).expect("removed");
        std::fs::rename(&canary, directory.join("canary")).expect("moved");
        std::os::unix::fs::symlink("../../canary", &blob).expect("linked");
        assert_eq!(layout.blob(&digest).expect("it is inside").expect("there").size, 6);
    }

    #[test]
    fn what_is_no_layout_says_why() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let open = || Layout::open(directory.path(), None).expect_err("refused");
        assert!(open().to_string().contains("is no OCI layout: oci-layout: No such file"));
        std::fs::write(directory.path().join("oci-layout"), r#"{"imageLayoutVersion":"2.0.0"}"#).expect("written");
        assert!(open().to_string().ends_with("its version is \"2.0.0\", only \"1.0.0\" is known"));
        std::fs::write(directory.path().join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).expect("written");
        assert!(matches!(open(), LayoutError::Read { .. }));
        std::fs::write(directory.path().join("index.json"), "[]").expect("written");
        assert!(open().to_string().contains("index.json: "));
    }
}
