//! Bytes on their way and bytes that are kept: private names under `ingest/`, kept blobs, and what interrupted pulls left.

pub(crate) mod blobs;
pub(crate) mod spool;
pub(crate) mod unfinished;
