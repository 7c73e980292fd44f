//! The database: its tables, typed reads and writes on them, and the handle that survives a failed write. Holds no rule
//! about images or layers; [`crate::commit`], [`crate::remove`], [`crate::images`] and [`crate::open`] do.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use oci::Digest;
use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};

use crate::backend::ReservedFile;
use crate::records::{ImageEntry, LayerEntry, LayerId, MountEntry, Totals, decode, encode};
use crate::reserve::Reserve;

const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const LAYERS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("layers");
const BY_DIFF_ID: TableDefinition<'_, &str, u64> = TableDefinition::new("layers_by_diff_id");
const BY_CHAIN_ID: TableDefinition<'_, &str, u64> = TableDefinition::new("layers_by_chain_id");
const IMAGES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("images");
const DOCUMENTS: TableDefinition<'_, (&str, u8), &[u8]> = TableDefinition::new("documents");
const NAMES: TableDefinition<'_, &str, &str> = TableDefinition::new("names");
const MOUNTS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("mounts");

/// The records are small and few: what redb keeps in memory by default would be more than the agent itself.
const CACHE_BYTES: usize = 8 * 1024 * 1024;

/// What a read or a write of the database can end with.
#[derive(Debug)]
pub(crate) enum DbError {
    Redb(Box<redb::Error>),
    Corrupt(String),
}

macro_rules! from_redb {
    ($($kind:ty),*) => {$(
        impl From<$kind> for DbError {
            fn from(error: $kind) -> Self {
                Self::Redb(Box::new(error.into()))
            }
        }
    )*};
}
from_redb!(redb::TableError, redb::StorageError, redb::TransactionError, redb::CommitError, redb::DatabaseError);

/// A document of an image, as the last part of its key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Document {
    Config = 0,
    Manifest = 1,
    Index = 2,
}

/// The open database. After a failed read or write redb's handle refuses everything; it is then opened again at the
/// next use, which finds the last state that reached the disk.
#[derive(Debug)]
pub(crate) struct Db {
    path: PathBuf,
    reserve: Arc<Reserve>,
    /// Guards the handle: shared by all users, exclusive while it is replaced.
    handle: RwLock<Option<Handle>>,
}

#[derive(Debug)]
struct Handle {
    db: Database,
    failed: Arc<AtomicBool>,
}

impl Handle {
    fn open(path: &Path, reserve: &Arc<Reserve>) -> Result<Self, DbError> {
        let failed = Arc::new(AtomicBool::new(false));
        let file = ReservedFile::open(path, Arc::clone(reserve), Arc::clone(&failed))
            .map_err(|error| DbError::Redb(Box::new(redb::Error::Io(error))))?;
        let db = Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(file)?;
        Ok(Self { db, failed })
    }

    fn is_usable(&self) -> bool {
        !self.failed.load(Ordering::Acquire)
    }
}

impl Db {
    /// Opens or creates it, with all tables.
    pub(crate) fn open(path: &Path, reserve: Arc<Reserve>) -> Result<Self, DbError> {
        let handle = Handle::open(path, &reserve)?;
        let transaction = handle.db.begin_write()?;
        {
            transaction.open_table(META)?;
            transaction.open_table(LAYERS)?;
            transaction.open_table(BY_DIFF_ID)?;
            transaction.open_table(BY_CHAIN_ID)?;
            transaction.open_table(IMAGES)?;
            transaction.open_table(DOCUMENTS)?;
            transaction.open_table(NAMES)?;
            transaction.open_table(MOUNTS)?;
        }
        transaction.commit()?;
        Ok(Self { path: path.to_owned(), reserve, handle: RwLock::new(Some(handle)) })
    }

    pub(crate) fn reserve(&self) -> &Reserve {
        &self.reserve
    }

    /// One consistent look at the records.
    pub(crate) fn read<T, E: From<DbError>>(&self, act: impl FnOnce(&ReadTransaction) -> Result<T, E>) -> Result<T, E> {
        self.with_handle(|db| {
            let transaction = db.begin_read().map_err(DbError::from)?;
            act(&transaction)
        })
    }

    /// One change of the records: durable when it returns, or nothing when it fails.
    pub(crate) fn write<T, E: From<DbError>>(
        &self,
        act: impl FnOnce(&WriteTransaction) -> Result<T, E>,
    ) -> Result<T, E> {
        self.with_handle(|db| {
            let transaction = db.begin_write().map_err(DbError::from)?;
            let value = act(&transaction)?;
            transaction.commit().map_err(DbError::from)?;
            Ok(value)
        })
    }

    /// Runs `act` on a usable handle.
    fn with_handle<T, E: From<DbError>>(&self, act: impl FnOnce(&Database) -> Result<T, E>) -> Result<T, E> {
        loop {
            let guard = self.handle.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(handle) = guard.as_ref().filter(|handle| handle.is_usable()) {
                return act(&handle.db);
            }
            drop(guard);
            let mut guard = self.handle.write().unwrap_or_else(PoisonError::into_inner);
            if !guard.as_ref().is_some_and(Handle::is_usable) {
                tracing::warn!(path = %self.path.display(), "the database failed before, and is opened again");
                // The old handle closes its file before the new one opens it.
                *guard = None;
                *guard = Some(Handle::open(&self.path, &self.reserve)?);
            }
        }
    }
}

/// Typed reads, the same within a read and within a write transaction.
pub(crate) trait Records {
    fn table<K: redb::Key + 'static, V: redb::Value + 'static>(
        &self,
        definition: TableDefinition<'_, K, V>,
    ) -> Result<impl ReadableTable<K, V>, DbError>;

    fn meta(&self, key: &str) -> Result<Option<Vec<u8>>, DbError> {
        Ok(self.table(META)?.get(key)?.map(|value| value.value().to_vec()))
    }

    fn totals(&self) -> Result<Totals, DbError> {
        self.meta("totals")?.map_or_else(|| Ok(Totals::default()), |bytes| decode("totals", &bytes))
    }

    fn next_layer(&self) -> Result<u64, DbError> {
        self.meta("next_layer")?.map_or_else(|| Ok(1), |bytes| decode("the next layer's number", &bytes))
    }

    fn layer(&self, id: LayerId) -> Result<Option<LayerEntry>, DbError> {
        let table = self.table(LAYERS)?;
        let value = table.get(id.0)?;
        value.map(|value| decode(format_args!("layer {id}"), value.value())).transpose()
    }

    /// A layer that an image refers to.
    fn layer_of_image(&self, id: LayerId) -> Result<LayerEntry, DbError> {
        self.layer(id)?.ok_or_else(|| DbError::Corrupt(format!("layer {id} of an image has no record")))
    }

    fn layers(&self) -> Result<Vec<(LayerId, LayerEntry)>, DbError> {
        let mut found = Vec::new();
        for row in self.table(LAYERS)?.iter()? {
            let (key, value) = row?;
            let id = LayerId(key.value());
            found.push((id, decode(format_args!("layer {id}"), value.value())?));
        }
        Ok(found)
    }

    fn layer_by_diff_id(&self, diff_id: &Digest) -> Result<Option<LayerId>, DbError> {
        Ok(self.table(BY_DIFF_ID)?.get(diff_id.to_string().as_str())?.map(|value| LayerId(value.value())))
    }

    fn layer_by_chain_id(&self, chain_id: &Digest) -> Result<Option<LayerId>, DbError> {
        Ok(self.table(BY_CHAIN_ID)?.get(chain_id.to_string().as_str())?.map(|value| LayerId(value.value())))
    }

    fn image(&self, id: &Digest) -> Result<Option<ImageEntry>, DbError> {
        let table = self.table(IMAGES)?;
        let value = table.get(id.to_string().as_str())?;
        value.map(|value| decode(format_args!("image {id}"), value.value())).transpose()
    }

    fn images(&self) -> Result<Vec<(Digest, ImageEntry)>, DbError> {
        let mut found = Vec::new();
        for row in self.table(IMAGES)?.iter()? {
            let (key, value) = row?;
            let id = image_id(key.value())?;
            let entry = decode(format_args!("image {id}"), value.value())?;
            found.push((id, entry));
        }
        Ok(found)
    }

    /// The ids that begin with this text.
    fn image_ids_from(&self, prefix: &str) -> Result<Vec<Digest>, DbError> {
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

    fn document(&self, id: &Digest, kind: Document) -> Result<Option<Vec<u8>>, DbError> {
        let id = id.to_string();
        Ok(self.table(DOCUMENTS)?.get((id.as_str(), kind as u8))?.map(|value| value.value().to_vec()))
    }

    fn name(&self, name: &str) -> Result<Option<Digest>, DbError> {
        self.table(NAMES)?.get(name)?.map(|value| image_id(value.value())).transpose()
    }

    fn mounts(&self) -> Result<Vec<(PathBuf, MountEntry)>, DbError> {
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

fn image_id(text: &str) -> Result<Digest, DbError> {
    text.parse().map_err(|error| DbError::Corrupt(format!("image id {text:?}: {error}")))
}

impl Records for ReadTransaction {
    fn table<K: redb::Key + 'static, V: redb::Value + 'static>(
        &self,
        definition: TableDefinition<'_, K, V>,
    ) -> Result<impl ReadableTable<K, V>, DbError> {
        Ok(self.open_table(definition)?)
    }
}

impl Records for WriteTransaction {
    fn table<K: redb::Key + 'static, V: redb::Value + 'static>(
        &self,
        definition: TableDefinition<'_, K, V>,
    ) -> Result<impl ReadableTable<K, V>, DbError> {
        Ok(self.open_table(definition)?)
    }
}

/// Typed writes.
pub(crate) trait RecordsMut: Records {
    fn put_meta(&self, key: &str, value: &[u8]) -> Result<(), DbError>;
    fn put_layer(&self, id: LayerId, entry: &LayerEntry) -> Result<(), DbError>;
    fn delete_layer(&self, id: LayerId, entry: &LayerEntry) -> Result<(), DbError>;
    fn put_image(&self, id: &Digest, entry: &ImageEntry) -> Result<(), DbError>;
    fn delete_image(&self, id: &Digest) -> Result<(), DbError>;
    fn put_document(&self, id: &Digest, kind: Document, bytes: Option<&[u8]>) -> Result<(), DbError>;
    fn put_name(&self, name: &str, id: &Digest) -> Result<(), DbError>;
    fn delete_name(&self, name: &str) -> Result<(), DbError>;
    fn put_mount(&self, target: &Path, entry: &MountEntry) -> Result<(), DbError>;
    fn delete_mount(&self, target: &Path) -> Result<(), DbError>;

    fn put_totals(&self, totals: &Totals) -> Result<(), DbError> {
        self.put_meta("totals", &encode(totals))
    }

    fn put_next_layer(&self, number: u64) -> Result<(), DbError> {
        self.put_meta("next_layer", &encode(&number))
    }
}

/// The table and the key by which a layer is found.
fn way_to(entry: &LayerEntry) -> (TableDefinition<'static, &'static str, u64>, String) {
    match &entry.chain_id {
        Some(chain_id) => (BY_CHAIN_ID, chain_id.to_string()),
        None => (BY_DIFF_ID, entry.diff_id.to_string()),
    }
}

impl RecordsMut for WriteTransaction {
    fn put_meta(&self, key: &str, value: &[u8]) -> Result<(), DbError> {
        self.open_table(META)?.insert(key, value)?;
        Ok(())
    }

    /// The record, and the way to it: by chain id where it has one, by diff id otherwise.
    fn put_layer(&self, id: LayerId, entry: &LayerEntry) -> Result<(), DbError> {
        self.open_table(LAYERS)?.insert(id.0, encode(entry).as_slice())?;
        let (table, key) = way_to(entry);
        self.open_table(table)?.insert(key.as_str(), id.0)?;
        Ok(())
    }

    fn delete_layer(&self, id: LayerId, entry: &LayerEntry) -> Result<(), DbError> {
        self.open_table(LAYERS)?.remove(id.0)?;
        let (table, key) = way_to(entry);
        let mut table = self.open_table(table)?;
        // A newer generation of the same layer may have taken the key over.
        if table.get(key.as_str())?.is_some_and(|value| value.value() == id.0) {
            table.remove(key.as_str())?;
        }
        Ok(())
    }

    fn put_image(&self, id: &Digest, entry: &ImageEntry) -> Result<(), DbError> {
        self.open_table(IMAGES)?.insert(id.to_string().as_str(), encode(entry).as_slice())?;
        Ok(())
    }

    fn delete_image(&self, id: &Digest) -> Result<(), DbError> {
        self.open_table(IMAGES)?.remove(id.to_string().as_str())?;
        for kind in [Document::Config, Document::Manifest, Document::Index] {
            self.put_document(id, kind, None)?;
        }
        Ok(())
    }

    fn put_document(&self, id: &Digest, kind: Document, bytes: Option<&[u8]>) -> Result<(), DbError> {
        let id = id.to_string();
        let mut table = self.open_table(DOCUMENTS)?;
        let key = (id.as_str(), kind as u8);
        match bytes {
            Some(bytes) => table.insert(key, bytes)?,
            None => table.remove(key)?,
        };
        Ok(())
    }

    fn put_name(&self, name: &str, id: &Digest) -> Result<(), DbError> {
        self.open_table(NAMES)?.insert(name, id.to_string().as_str())?;
        Ok(())
    }

    fn delete_name(&self, name: &str) -> Result<(), DbError> {
        self.open_table(NAMES)?.remove(name)?;
        Ok(())
    }

    fn put_mount(&self, target: &Path, entry: &MountEntry) -> Result<(), DbError> {
        use std::os::unix::ffi::OsStrExt;
        self.open_table(MOUNTS)?.insert(target.as_os_str().as_bytes(), encode(entry).as_slice())?;
        Ok(())
    }

    fn delete_mount(&self, target: &Path) -> Result<(), DbError> {
        use std::os::unix::ffi::OsStrExt;
        self.open_table(MOUNTS)?.remove(target.as_os_str().as_bytes())?;
        Ok(())
    }
}

#[cfg(test)]
#[path = "db_tests.rs"]
mod tests;
