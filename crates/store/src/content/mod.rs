//! Bytes on their way and bytes that are kept: private names under `ingest/`, kept blobs, and what interrupted pulls left.

pub(crate) mod blobs;
pub(crate) mod left;
pub(crate) mod part;
pub(crate) mod private;
pub(crate) mod spool;
pub(crate) mod spool_head;
pub(crate) mod unfinished;
