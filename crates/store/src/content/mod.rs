//! Bytes on their way and bytes that are kept: private names under `ingest/`, kept blobs, and what interrupted pulls left.

pub(crate) mod blobs;
pub(crate) mod left;
pub(crate) mod private;
pub(crate) mod spool;
pub(crate) mod unfinished;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use base::lock::Mutex;

use crate::content::left::LeftWork;
use crate::records::catalog::Catalog;

/// Leftovers by their number under `ingest/`. Their names are marked busy, so that no sweep removes them.
pub(crate) type LeftTable = BTreeMap<u64, LeftWork>;

/// Private files and directories, kept blobs, and leftovers of interrupted pulls.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) catalog: Arc<Catalog>,
    /// The next number under `ingest/`.
    pub(crate) next_ingest: AtomicU64,
    /// Guards the names under `ingest/` that are in use. Everything else in it is a leftover.
    pub(crate) busy: Mutex<BTreeSet<String>>,
    /// Since when (nanoseconds since 1970) left work is kept. `None`: nothing is.
    pub(crate) unfinished_since: Option<i64>,
    /// Guards the table of leftovers of interrupted pulls.
    pub(crate) left: Mutex<LeftTable>,
}

impl Content {
    pub(crate) fn new(catalog: &Arc<Catalog>, unfinished_since: Option<i64>) -> Self {
        Self {
            catalog: Arc::clone(catalog),
            next_ingest: AtomicU64::new(1),
            busy: Mutex::default(),
            unfinished_since,
            left: Mutex::default(),
        }
    }
}
