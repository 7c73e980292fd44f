//! Contents of a directory as skopeo's `dir:` and `podman save --format docker-dir` write it: a file with the version, the
//! manifest of one image or an index, and blobs by their digests alone. Called by the import; the export writes the same.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use cri_api::Result;
use oci::{Descriptor, Digest, Document, media_type};

use super::archive::{Archive, ArchivedImage};
use crate::error::{damaged, invalid};

/// The file that says that a directory is of this form.
pub(crate) const VERSION: &str = "version";
/// The first words of this file; the version follows.
pub(crate) const VERSION_TEXT: &str = "Directory Transport Version: ";
/// The file with the manifest.
pub(crate) const MANIFEST: &str = "manifest.json";

/// The image of the directory; `None` when it is of another form.
pub(crate) fn entries(archive: &Archive) -> Result<Option<Vec<ArchivedImage>>> {
    let Some(version) = archive.find(VERSION)? else { return Ok(None) };
    let version = archive.read(&version, VERSION)?;
    let Some(version) = std::str::from_utf8(&version).ok().and_then(|text| text.strip_prefix(VERSION_TEXT)) else {
        return Ok(None);
    };
    let place = archive.path().display();
    if !version.starts_with("1.") {
        let version = version.trim_end();
        return Err(invalid(format!("{place}: version {version:?} of the directory is not supported, only 1.x")));
    }
    let bytes = archive.read(&archive.get(MANIFEST)?, MANIFEST)?;
    let media_type = match Document::parse(&bytes, None) {
        Ok(Document::Manifest(manifest)) => manifest.media_type.unwrap_or_else(|| media_type::OCI_MANIFEST.to_owned()),
        Ok(Document::Index(index)) => index.media_type.unwrap_or_else(|| media_type::OCI_INDEX.to_owned()),
        Err(error) => return Err(damaged(format!("{place}: {MANIFEST}: {error}"))),
    };
    let descriptor = Descriptor::new(media_type, Digest::sha256(&bytes), bytes.len() as u64);
    let documents = HashMap::from([(descriptor.digest.clone(), Bytes::from(bytes))]);
    Ok(Some(vec![ArchivedImage {
        descriptor,
        names: BTreeSet::new(),
        layers: HashMap::new(),
        documents,
        has_manifest: true,
    }]))
}
