//! The tables of the database, and typed reads and writes on them. Holds no rule about images or layers;
//! [`crate::images::commit`], [`crate::images::remove`], [`crate::records::images`], [`crate::maintenance::sweep`] and [`crate::check`] do.

use std::path::{Path, PathBuf};

use oci::Digest;
use redb::{ReadTransaction, ReadableTable, TableDefinition, TableError, WriteTransaction};

use crate::disk::layer::LayerId;
use crate::error::StoreError;
use crate::records::entries::{BlobEntry, ImageEntry, LayerEntry, MountEntry, Totals, decode, encode};

pub(crate) const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
pub(crate) const LAYERS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("layers");
pub(crate) const BY_DIFF_ID: TableDefinition<'_, &str, u64> = TableDefinition::new("layers_by_diff_id");
pub(crate) const BY_CHAIN_ID: TableDefinition<'_, &str, u64> = TableDefinition::new("layers_by_chain_id");
pub(crate) const IMAGES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("images");
pub(crate) const DOCUMENTS: TableDefinition<'_, (&str, u8), &[u8]> = TableDefinition::new("documents");
pub(crate) const NAMES: TableDefinition<'_, &str, &str> = TableDefinition::new("names");
pub(crate) const MOUNTS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("mounts");

/// Kept blobs by digest. Stores of earlier versions do not have it: it is made with the first blob.
pub(crate) const BLOBS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("blobs");

/// A document of an image, as the last part of its key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DocumentKind {
    Config = 0,
    Manifest = 1,
    Index = 2,
}

/// A kept blob by the text of its digest, if its record can be read.
pub(crate) type BlobRow = (String, Result<(Digest, BlobEntry), StoreError>);

/// An image by the text of its id, if its record can be read.
pub(crate) type ImageRow = (String, Result<ImageEntry, StoreError>);

/// A layer, if its record can be read.
pub(crate) type LayerRow = (LayerId, Result<LayerEntry, StoreError>);

fn is_there<T>(opened: Result<T, TableError>) -> Result<bool, StoreError> {
    match opened {
        Ok(_) => Ok(true),
        Err(TableError::TableDoesNotExist(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns true if all tables have been made.
pub(crate) fn are_there(transaction: &ReadTransaction) -> Result<bool, StoreError> {
    Ok(is_there(transaction.open_table(META))?
        && is_there(transaction.open_table(LAYERS))?
        && is_there(transaction.open_table(BY_DIFF_ID))?
        && is_there(transaction.open_table(BY_CHAIN_ID))?
        && is_there(transaction.open_table(IMAGES))?
        && is_there(transaction.open_table(DOCUMENTS))?
        && is_there(transaction.open_table(NAMES))?
        && is_there(transaction.open_table(MOUNTS))?)
}

/// Makes those that are missing.
pub(crate) fn make(transaction: &WriteTransaction) -> Result<(), StoreError> {
    transaction.open_table(META)?;
    transaction.open_table(LAYERS)?;
    transaction.open_table(BY_DIFF_ID)?;
    transaction.open_table(BY_CHAIN_ID)?;
    transaction.open_table(IMAGES)?;
    transaction.open_table(DOCUMENTS)?;
    transaction.open_table(NAMES)?;
    transaction.open_table(MOUNTS)?;
    Ok(())
}

/// Typed reads, the same within a read and within a write transaction.
pub(crate) trait Records {
    fn table<K: redb::Key + 'static, V: redb::Value + 'static>(
        &self,
        definition: TableDefinition<'_, K, V>,
    ) -> Result<impl ReadableTable<K, V>, StoreError>;

    fn meta(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.table(META)?.get(key)?.map(|value| value.value().to_vec()))
    }

    fn totals(&self) -> Result<Totals, StoreError> {
        self.meta("totals")?.map_or_else(|| Ok(Totals::default()), |bytes| decode("totals", &bytes))
    }

    /// A number that every change of the records makes another one.
    fn stamp(&self) -> Result<u64, StoreError> {
        self.meta("stamp")?.map_or_else(|| Ok(0), |bytes| decode("the stamp", &bytes))
    }

    fn next_layer(&self) -> Result<u64, StoreError> {
        self.meta("next_layer")?.map_or_else(|| Ok(1), |bytes| decode("the next layer's number", &bytes))
    }

    fn layer(&self, id: LayerId) -> Result<Option<LayerEntry>, StoreError> {
        let table = self.table(LAYERS)?;
        let value = table.get(id.0)?;
        value.map(|value| decode(format_args!("layer {id}"), value.value())).transpose()
    }

    /// A layer that an image refers to.
    fn layer_of_image(&self, id: LayerId) -> Result<LayerEntry, StoreError> {
        self.layer(id)?.ok_or_else(|| StoreError::Corrupt(format!("layer {id} of an image has no record")))
    }

    fn layers(&self) -> Result<Vec<(LayerId, LayerEntry)>, StoreError> {
        self.layer_rows()?.into_iter().map(|(id, entry)| Ok((id, entry?))).collect()
    }

    /// All layers, also where a record cannot be read.
    fn layer_rows(&self) -> Result<Vec<LayerRow>, StoreError> {
        let mut found = Vec::new();
        for row in self.table(LAYERS)?.iter()? {
            let (key, value) = row?;
            let id = LayerId(key.value());
            found.push((id, decode(format_args!("layer {id}"), value.value())));
        }
        Ok(found)
    }

    fn layer_by_diff_id(&self, diff_id: &Digest) -> Result<Option<LayerId>, StoreError> {
        Ok(self.table(BY_DIFF_ID)?.get(diff_id.to_string().as_str())?.map(|value| LayerId(value.value())))
    }

    fn layer_by_chain_id(&self, chain_id: &Digest) -> Result<Option<LayerId>, StoreError> {
        Ok(self.table(BY_CHAIN_ID)?.get(chain_id.to_string().as_str())?.map(|value| LayerId(value.value())))
    }

    /// Returns true if any blob was ever kept.
    fn has_blobs(&self) -> Result<bool, StoreError>;

    fn blob(&self, digest: &Digest) -> Result<Option<BlobEntry>, StoreError> {
        if !self.has_blobs()? {
            return Ok(None);
        }
        let table = self.table(BLOBS)?;
        let value = table.get(digest.to_string().as_str())?;
        value.map(|value| decode(format_args!("blob {digest}"), value.value())).transpose()
    }

    /// All kept blobs, also where a record cannot be read.
    fn blob_rows(&self) -> Result<Vec<BlobRow>, StoreError> {
        let mut found = Vec::new();
        if !self.has_blobs()? {
            return Ok(found);
        }
        for row in self.table(BLOBS)?.iter()? {
            let (key, value) = row?;
            let key = key.value().to_owned();
            let wrong = |error| StoreError::Corrupt(format!("blob {key:?}: {error}"));
            let entry = key.parse::<Digest>().map_err(wrong).and_then(|digest| {
                let entry = decode(format_args!("blob {digest}"), value.value())?;
                Ok((digest, entry))
            });
            found.push((key, entry));
        }
        Ok(found)
    }

    fn image(&self, id: &Digest) -> Result<Option<ImageEntry>, StoreError> {
        let table = self.table(IMAGES)?;
        let value = table.get(id.to_string().as_str())?;
        value.map(|value| decode(format_args!("image {id}"), value.value())).transpose()
    }

    fn images(&self) -> Result<Vec<(Digest, ImageEntry)>, StoreError> {
        self.image_rows()?.into_iter().map(|(key, entry)| Ok((image_id(&key)?, entry?))).collect()
    }

    /// The same, also where a record cannot be read.
    fn image_rows(&self) -> Result<Vec<ImageRow>, StoreError> {
        let mut found = Vec::new();
        for row in self.table(IMAGES)?.iter()? {
            let (key, value) = row?;
            let key = key.value().to_owned();
            let entry = decode(format_args!("image {key}"), value.value());
            found.push((key, entry));
        }
        Ok(found)
    }

    /// The ids that begin with this text.
    fn image_ids_from(&self, prefix: &str) -> Result<Vec<Digest>, StoreError> {
        let mut found = Vec::new();
        for row in self.table(IMAGES)?.range(prefix..)? {
            let (key, _) = row?;
            if !key.value().starts_with(prefix) {
                break;
            }
            found.push(image_id(key.value())?);
        }
        Ok(found)
    }

    fn document(&self, id: &Digest, kind: DocumentKind) -> Result<Option<Vec<u8>>, StoreError> {
        let id = id.to_string();
        Ok(self.table(DOCUMENTS)?.get((id.as_str(), kind as u8))?.map(|value| value.value().to_vec()))
    }

    fn name(&self, name: &str) -> Result<Option<Digest>, StoreError> {
        self.table(NAMES)?.get(name)?.map(|value| image_id(value.value())).transpose()
    }

    fn names(&self) -> Result<Vec<(String, Digest)>, StoreError> {
        let mut found = Vec::new();
        for row in self.table(NAMES)?.iter()? {
            let (name, id) = row?;
            found.push((name.value().to_owned(), image_id(id.value())?));
        }
        Ok(found)
    }

    fn mounts(&self) -> Result<Vec<(PathBuf, MountEntry)>, StoreError> {
        use std::os::unix::ffi::OsStringExt;
        let mut found = Vec::new();
        for row in self.table(MOUNTS)?.iter()? {
            let (key, value) = row?;
            let target = PathBuf::from(std::ffi::OsString::from_vec(key.value().to_vec()));
            let entry = decode(format_args!("the mount on {}", target.display()), value.value())?;
            found.push((target, entry));
        }
        Ok(found)
    }
}

fn image_id(text: &str) -> Result<Digest, StoreError> {
    text.parse().map_err(|error| StoreError::Corrupt(format!("image id {text:?}: {error}")))
}

impl Records for ReadTransaction {
    fn table<K: redb::Key + 'static, V: redb::Value + 'static>(
        &self,
        definition: TableDefinition<'_, K, V>,
    ) -> Result<impl ReadableTable<K, V>, StoreError> {
        Ok(self.open_table(definition)?)
    }

    fn has_blobs(&self) -> Result<bool, StoreError> {
        is_there(self.open_table(BLOBS))
    }
}

impl Records for WriteTransaction {
    fn table<K: redb::Key + 'static, V: redb::Value + 'static>(
        &self,
        definition: TableDefinition<'_, K, V>,
    ) -> Result<impl ReadableTable<K, V>, StoreError> {
        Ok(self.open_table(definition)?)
    }

    fn has_blobs(&self) -> Result<bool, StoreError> {
        // To open it is to make it.
        Ok(true)
    }
}

/// The table and the key by which a layer is found.
fn way_to(entry: &LayerEntry) -> (TableDefinition<'static, &'static str, u64>, String) {
    match &entry.chain_id {
        Some(chain_id) => (BY_CHAIN_ID, chain_id.to_string()),
        None => (BY_DIFF_ID, entry.diff_id.to_string()),
    }
}

/// Typed writes.
pub(crate) trait RecordsMut: Records {
    fn table_mut<K: redb::Key + 'static, V: redb::Value + 'static>(
        &self,
        definition: TableDefinition<'_, K, V>,
    ) -> Result<redb::Table<'_, K, V>, StoreError>;

    fn put_totals(&self, totals: &Totals) -> Result<(), StoreError> {
        self.put_meta("totals", &encode(totals))
    }

    fn put_stamp(&self, stamp: u64) -> Result<(), StoreError> {
        self.put_meta("stamp", &encode(&stamp))
    }

    fn put_next_layer(&self, number: u64) -> Result<(), StoreError> {
        self.put_meta("next_layer", &encode(&number))
    }

    fn put_meta(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        self.table_mut(META)?.insert(key, value)?;
        Ok(())
    }

    /// The record, and the way to it: by chain id where it has one, by diff id otherwise.
    fn put_layer(&self, id: LayerId, entry: &LayerEntry) -> Result<(), StoreError> {
        self.table_mut(LAYERS)?.insert(id.0, encode(entry).as_slice())?;
        let (table, key) = way_to(entry);
        self.table_mut(table)?.insert(key.as_str(), id.0)?;
        Ok(())
    }

    fn delete_layer(&self, id: LayerId, entry: &LayerEntry) -> Result<(), StoreError> {
        self.table_mut(LAYERS)?.remove(id.0)?;
        let (table, key) = way_to(entry);
        let mut table = self.table_mut(table)?;
        // A newer generation of the same layer may have taken the key over.
        if table.get(key.as_str())?.is_some_and(|value| value.value() == id.0) {
            table.remove(key.as_str())?;
        }
        Ok(())
    }

    fn put_blob(&self, digest: &Digest, entry: &BlobEntry) -> Result<(), StoreError> {
        self.table_mut(BLOBS)?.insert(digest.to_string().as_str(), encode(entry).as_slice())?;
        Ok(())
    }

    fn delete_blob(&self, digest: &Digest) -> Result<(), StoreError> {
        self.table_mut(BLOBS)?.remove(digest.to_string().as_str())?;
        Ok(())
    }

    fn put_image(&self, id: &Digest, entry: &ImageEntry) -> Result<(), StoreError> {
        self.table_mut(IMAGES)?.insert(id.to_string().as_str(), encode(entry).as_slice())?;
        Ok(())
    }

    fn delete_image(&self, id: &Digest) -> Result<(), StoreError> {
        self.table_mut(IMAGES)?.remove(id.to_string().as_str())?;
        for kind in [DocumentKind::Config, DocumentKind::Manifest, DocumentKind::Index] {
            self.put_document(id, kind, None)?;
        }
        Ok(())
    }

    fn put_document(&self, id: &Digest, kind: DocumentKind, bytes: Option<&[u8]>) -> Result<(), StoreError> {
        let id = id.to_string();
        let mut table = self.table_mut(DOCUMENTS)?;
        let key = (id.as_str(), kind as u8);
        match bytes {
            Some(bytes) => table.insert(key, bytes)?,
            None => table.remove(key)?,
        };
        Ok(())
    }

    fn put_name(&self, name: &str, id: &Digest) -> Result<(), StoreError> {
        self.table_mut(NAMES)?.insert(name, id.to_string().as_str())?;
        Ok(())
    }

    fn delete_name(&self, name: &str) -> Result<(), StoreError> {
        self.table_mut(NAMES)?.remove(name)?;
        Ok(())
    }

    fn put_mount(&self, target: &Path, entry: &MountEntry) -> Result<(), StoreError> {
        use std::os::unix::ffi::OsStrExt;
        self.table_mut(MOUNTS)?.insert(target.as_os_str().as_bytes(), encode(entry).as_slice())?;
        Ok(())
    }

    fn delete_mount(&self, target: &Path) -> Result<(), StoreError> {
        use std::os::unix::ffi::OsStrExt;
        self.table_mut(MOUNTS)?.remove(target.as_os_str().as_bytes())?;
        Ok(())
    }
}

impl RecordsMut for WriteTransaction {
    fn table_mut<K: redb::Key + 'static, V: redb::Value + 'static>(
        &self,
        definition: TableDefinition<'_, K, V>,
    ) -> Result<redb::Table<'_, K, V>, StoreError> {
        Ok(self.open_table(definition)?)
    }
}
