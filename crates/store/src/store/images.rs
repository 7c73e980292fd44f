//! Operations on the records of images: listing, tags, annotations, pins, and resolving a reference or ID to an image.

use crate::error::{ResolveError, StoreError};
use crate::records::entries::ImageRecord;
use crate::records::images::{assemble, find_id, load, tag_name, take_name};
use crate::records::tables::{Records, RecordsMut};
use crate::store::Store;
use oci::{Digest, Reference, ReferenceOrId};
use std::collections::{BTreeMap, BTreeSet};

impl Store {
    /// All images, ordered by id.
    ///
    /// # Errors
    /// The database could not be read.
    pub fn images(&self) -> Result<Vec<ImageRecord>, StoreError> {
        self.catalog.db.read(|records| {
            let images = records.images()?;
            images.into_iter().map(|(id, entry)| assemble(records, id, entry)).collect()
        })
    }

    /// The image with this id.
    ///
    /// # Errors
    /// The database could not be read.
    pub fn image(&self, id: &Digest) -> Result<Option<ImageRecord>, StoreError> {
        self.catalog.db.read(|records| load(records, id))
    }

    /// Gives an image one more name, which another image loses if it had it. `name` gets the default tag where it has none.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or a name with a digest.
    pub fn tag(&self, id: &Digest, name: &Reference) -> Result<(), StoreError> {
        let tag = tag_name(name)?;
        self.catalog.db.write(|transaction| {
            let mut entry = transaction.image(id)?.ok_or_else(|| StoreError::NotFound(id.clone()))?;
            take_name(transaction, id, &tag)?;
            entry.tags.insert(tag);
            transaction.put_image(id, &entry)
        })
    }

    /// Removes names from an image, which stays with its other names or with none. Names with a digest stay. Returns the removed
    /// names, in normal form.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or a name with a digest; nothing is removed then.
    pub fn untag(&self, id: &Digest, names: &[Reference]) -> Result<Vec<String>, StoreError> {
        let tags = names.iter().map(tag_name).collect::<Result<BTreeSet<_>, _>>()?;
        self.catalog.db.write(|transaction| {
            let mut entry = transaction.image(id)?.ok_or_else(|| StoreError::NotFound(id.clone()))?;
            let mut taken = Vec::new();
            for tag in &tags {
                if entry.tags.remove(tag) {
                    transaction.delete_name(tag)?;
                    taken.push(tag.clone());
                }
            }
            transaction.put_image(id, &entry)?;
            Ok(taken)
        })
    }

    /// Replaces the annotations of an image.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or a database error.
    pub fn annotate(&self, id: &Digest, annotations: &BTreeMap<String, String>) -> Result<(), StoreError> {
        self.catalog.db.write(|transaction| {
            let mut entry = transaction.image(id)?.ok_or_else(|| StoreError::NotFound(id.clone()))?;
            entry.annotations.clone_from(annotations);
            transaction.put_image(id, &entry)
        })
    }

    /// Sets whether an image must be kept.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or a database error.
    pub fn set_pinned(&self, id: &Digest, pinned: bool) -> Result<(), StoreError> {
        self.catalog.db.write(|transaction| {
            let mut entry = transaction.image(id)?.ok_or_else(|| StoreError::NotFound(id.clone()))?;
            entry.pinned = pinned;
            transaction.put_image(id, &entry)
        })
    }

    /// Returns the image with this ID, this reference (with a tag and a digest, the digest decides), or an ID that begins so.
    ///
    /// # Errors
    /// [`ResolveError::Empty`], [`ResolveError::Ambiguous`], or the database could not be read.
    pub fn resolve(&self, named: &ReferenceOrId) -> Result<Option<ImageRecord>, ResolveError> {
        let text = named.as_str();
        if text.is_empty() {
            return Err(ResolveError::Empty);
        }
        self.catalog.db.read(|records| {
            let Some(id) = find_id(records, named)? else { return Ok(None) };
            let image = load(records, &id)?;
            Ok(Some(
                image.ok_or_else(|| StoreError::Corrupt(format!("{text:?} names image {id}, which has no record")))?,
            ))
        })
    }
}
