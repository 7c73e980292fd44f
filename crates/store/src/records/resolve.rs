//! From a text to an image: ids, beginnings of ids, and names in any spelling. A name that exists wins over the
//! beginning of an id, as in containerd.

use oci::{Digest, Reference};

use crate::error::{DbError, ResolveError};
use crate::records::entries::ImageRecord;
use crate::records::images;
use crate::records::tables::Records;
use crate::store::Store;

/// Fewer digits than this are no id.
const SHORTEST_PREFIX: usize = 3;
const ID_DIGITS: usize = 64;

impl Store {
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
            let Some(id) = find(records, text)? else { return Ok(None) };
            let image = images::load(records, &id)?;
            Ok(Some(image.ok_or_else(|| DbError::Corrupt(format!("{text:?} names image {id}, which has no record")))?))
        })
    }
}

fn find(records: &impl Records, text: &str) -> Result<Option<Digest>, ResolveError> {
    // A whole id is never taken for anything else.
    let whole = if is_hex(text) && text.len() == ID_DIGITS { format!("sha256:{text}") } else { text.to_owned() };
    if let Ok(id) = whole.parse::<Digest>() {
        return Ok(records.image(&id)?.map(|_| id));
    }
    if let Ok(reference) = Reference::parse(text) {
        let name = reference.canonical().to_string();
        if let Some(id) = records.name(&name)? {
            // A digest that the image was never verified to have leads nowhere, and not on to an id.
            let is_foreign = records.image(&id)?.is_some_and(|image| !image.may_use(&name));
            return Ok((!is_foreign).then_some(id));
        }
    }
    let prefix = text.strip_prefix("sha256:").unwrap_or(text);
    if prefix.len() < SHORTEST_PREFIX || !is_hex(prefix) {
        return Ok(None);
    }
    let mut ids = records.image_ids_from(&format!("sha256:{prefix}"))?;
    match ids.len() {
        0 | 1 => Ok(ids.pop()),
        _ => Err(ResolveError::Ambiguous { prefix: text.to_owned(), ids }),
    }
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}
