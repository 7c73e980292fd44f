//! The database, its tables, and the rules that hold between records. It knows no directory.

pub(crate) mod backend;
pub(crate) mod catalog;
pub(crate) mod db;
pub(crate) mod digests;
pub(crate) mod entries;
pub(crate) mod images;
pub(crate) mod release;
pub(crate) mod respell;
pub(crate) mod tables;
