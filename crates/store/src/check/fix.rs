//! [`Fix`]: a change of the records that puts something right. The examination collects fixes, and a repair makes them.

use oci::Digest;
use redb::WriteTransaction;

use crate::disk::layer::LayerId;
use crate::error::StoreError;
use crate::records::entries::{BlobEntry, ImageEntry, LayerEntry, Totals};
use crate::records::tables::{BLOBS, BY_CHAIN_ID, BY_DIFF_ID, DOCUMENTS, IMAGES, LAYERS, RecordsMut};

/// A change that puts something right.
pub(super) enum Fix {
    /// A layer's record that cannot be read.
    DropLayerRow(LayerId),
    /// An image's record and its documents, in whatever state they are.
    DropImageRow(String),
    DropName(String),
    PutName(String, Digest),
    DropWay {
        by_chain: bool,
        key: String,
    },
    PutLayer(LayerId, LayerEntry),
    DeleteLayer(LayerId, LayerEntry),
    PutImage(Digest, ImageEntry),
    PutTotals(Totals),
    PutBlob(Digest, BlobEntry),
    /// A blob's record, by its key, which may be none.
    DropBlob(String),
}

impl Fix {
    pub(super) fn make(&self, transaction: &WriteTransaction) -> Result<(), StoreError> {
        match self {
            Self::DropLayerRow(id) => drop(transaction.open_table(LAYERS)?.remove(id.0)?),
            Self::DropImageRow(id) => {
                transaction.open_table(IMAGES)?.remove(id.as_str())?;
                let mut documents = transaction.open_table(DOCUMENTS)?;
                for kind in 0..=u8::MAX {
                    documents.remove((id.as_str(), kind))?;
                }
            }
            Self::DropName(name) => transaction.delete_name(name)?,
            Self::PutName(name, id) => transaction.put_name(name, id)?,
            Self::DropWay { by_chain, key } => {
                let table = if *by_chain { BY_CHAIN_ID } else { BY_DIFF_ID };
                transaction.open_table(table)?.remove(key.as_str())?;
            }
            Self::PutLayer(id, entry) => transaction.put_layer(*id, entry)?,
            Self::DeleteLayer(id, entry) => transaction.delete_layer(*id, entry)?,
            Self::PutImage(id, entry) => transaction.put_image(id, entry)?,
            Self::PutTotals(totals) => transaction.put_totals(totals)?,
            Self::PutBlob(digest, entry) => transaction.put_blob(digest, entry)?,
            Self::DropBlob(key) => drop(transaction.open_table(BLOBS)?.remove(key.as_str())?),
        }
        Ok(())
    }
}
