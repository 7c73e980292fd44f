//! Operations on the records of images: listing, tags, annotations, pins, and resolving a text to an image.

use crate::error::{ResolveError, StoreError};
use crate::records::entries::ImageRecord;
use crate::records::images::{assemble, find_id, load, tag_name, take_name};
use crate::records::tables::{Records, RecordsMut};
use crate::store::Store;
use oci::Digest;
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

    /// Gives an image one more name, which another image loses if it had it. `name` is taken in any spelling, and gets
    /// the default tag where it has none.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or a name that is none or has a digest.
    pub fn tag(&self, id: &Digest, name: &str) -> Result<(), StoreError> {
        let tag = tag_name(name)?;
        self.catalog.db.write(|transaction| {
            let mut entry = transaction.image(id)?.ok_or_else(|| StoreError::NotFound(id.clone()))?;
            take_name(transaction, id, &tag)?;
            entry.tags.insert(tag);
            transaction.put_image(id, &entry)
        })
    }

    /// Takes names from an image, which stays with its other names or with none. Digests of repositories stay. Names are taken
    /// in any spelling. Returns those that it had, in normal form.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or a name that is none or has a digest; nothing is taken then.
    pub fn untag(&self, id: &Digest, names: &[String]) -> Result<Vec<String>, StoreError> {
        let tags = names.iter().map(|name| tag_name(name)).collect::<Result<BTreeSet<_>, _>>()?;
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

    /// The image that `text` means: an id with or without `sha256:`, `name`, `name:tag`, `name@digest`,
    /// `name:tag@digest` (the digest decides), or the beginning of an id, of three digits or more.
    ///
    /// # Errors
    /// [`ResolveError::Empty`], [`ResolveError::Ambiguous`], or the database could not be read.
    pub fn resolve(&self, text: &str) -> Result<Option<ImageRecord>, ResolveError> {
        if text.is_empty() {
            return Err(ResolveError::Empty);
        }
        self.catalog.db.read(|records| {
            let Some(id) = find_id(records, text)? else { return Ok(None) };
            let image = load(records, &id)?;
            Ok(Some(
                image.ok_or_else(|| StoreError::Corrupt(format!("{text:?} names image {id}, which has no record")))?,
            ))
        })
    }
}
