//! Reads image records, assigns names, and finds an image by its ID, the beginning of its ID, or a reference. A name that exists
//! has precedence over the beginning of an ID, as in containerd.

use std::collections::BTreeSet;

use oci::{Digest, Reference, ReferenceOrId};

use crate::error::{ResolveError, StoreError};
use crate::records::catalog::Catalog;
use crate::records::entries::{ImageEntry, ImageRecord};
use crate::records::tables::{DocumentKind, Records, RecordsMut};

/// Returns the bytes on disk of an image: documents, layers and kept blobs.
pub(crate) fn size_of(records: &impl Records, image: &ImageEntry) -> Result<u64, StoreError> {
    let mut size = image.document_bytes;
    for layer in image.distinct_layers() {
        size += records.layer_of_image(layer)?.stats.disk_bytes;
    }
    for digest in &image.blobs {
        size += records.blob(digest)?.map_or(0, |blob| blob.disk_bytes);
    }
    Ok(size)
}

impl Catalog {
    /// Reports names with a digest that their image was never verified to have, as earlier versions recorded them. What cannot
    /// be read is left to the check.
    pub(crate) fn report_unverified_names(&self) -> Result<(), StoreError> {
        let rows = self.db.read(|records| records.image_rows())?;
        for (image, entry) in rows {
            let Ok(entry) = entry else { continue };
            let names: Vec<&str> = entry.unverified_names().map(String::as_str).collect();
            if !names.is_empty() {
                tracing::warn!(
                    image,
                    names = names.join(", "),
                    "names are not used whose digest is not known to be the image's; pull them, or drop them by `check --repair`"
                );
            }
        }
        Ok(())
    }
}

/// The image with this id, documents included.
pub(crate) fn load(records: &impl Records, id: &Digest) -> Result<Option<ImageRecord>, StoreError> {
    records.image(id)?.map(|entry| assemble(records, id.clone(), entry)).transpose()
}

pub(crate) fn assemble(records: &impl Records, id: Digest, entry: ImageEntry) -> Result<ImageRecord, StoreError> {
    let document = |kind| {
        records.document(&id, kind)?.ok_or_else(|| StoreError::Corrupt(format!("image {id} has no {kind:?} document")))
    };
    let (config, manifest) = (document(DocumentKind::Config)?, document(DocumentKind::Manifest)?);
    let index = records.document(&id, DocumentKind::Index)?;
    let may_use = |names: &BTreeSet<String>| names.iter().filter(|name| entry.may_use(name)).cloned().collect();
    let (tags, repo_digests) = (may_use(&entry.tags), may_use(&entry.repo_digests));
    Ok(ImageRecord {
        id,
        config,
        manifest,
        manifest_digest: entry.manifest_digest,
        manifest_media_type: entry.manifest_media_type,
        index,
        index_digest: entry.index_digest,
        tags,
        repo_digests,
        layers: entry.layers,
        blobs: entry.blobs,
        size: entry.size,
        created_at_unix_nanos: entry.created_at_unix_nanos,
        pinned: entry.pinned,
        annotations: entry.annotations,
    })
}

/// Points a name at an image, and takes it from the record of the one that had it. That image stays, with its other
/// names or with none. The caller adds the name to the new image's record.
pub(crate) fn take_name(transaction: &impl RecordsMut, id: &Digest, name: &str) -> Result<(), StoreError> {
    if let Some(before) = transaction.name(name)?
        && before != *id
        && let Some(mut entry) = transaction.image(&before)?
    {
        entry.tags.remove(name);
        entry.repo_digests.remove(name);
        transaction.put_image(&before, &entry)?;
    }
    transaction.put_name(name, id)
}

/// Returns the recorded form of a tag: in normal form, with the default tag where there is none.
pub(crate) fn tag_name(name: &Reference) -> Result<String, StoreError> {
    if name.digest().is_some() {
        return Err(StoreError::UnsuitableName { name: name.to_string(), why: "has a digest, and cannot be a tag" });
    }
    Ok(name.clone().with_default_tag().to_string())
}

/// Returns the recorded form of a name with a digest: in normal form, without a tag.
pub(crate) fn digest_name(name: &Reference) -> Result<String, StoreError> {
    if name.digest().is_none() {
        return Err(StoreError::UnsuitableName { name: name.to_string(), why: "has no digest" });
    }
    Ok(name.clone().canonical().to_string())
}

/// Returns the ID of the image that is named so.
pub(crate) fn find_id(records: &impl Records, named: &ReferenceOrId) -> Result<Option<Digest>, ResolveError> {
    // A whole ID is never taken for anything else.
    if let Some(id) = named.id() {
        return Ok(records.image(id)?.map(|_| id.clone()));
    }
    if let Some(reference) = named.reference() {
        let name = reference.clone().canonical().to_string();
        if let Some(id) = records.name(&name)? {
            // A name whose digest the image was never verified to have finds nothing, and is not tried as an ID.
            let is_foreign = records.image(&id)?.is_some_and(|image| !image.may_use(&name));
            return Ok((!is_foreign).then_some(id));
        }
    }
    let Some(prefix) = named.id_prefix() else { return Ok(None) };
    let mut ids = records.image_ids_from(&format!("sha256:{prefix}"))?;
    match ids.len() {
        0 | 1 => Ok(ids.pop()),
        _ => Err(ResolveError::Ambiguous { prefix: named.to_string(), ids }),
    }
}
