//! Committed layers: what a layer is on the disk, which of them may be used, and their deletion.

pub(crate) mod compare;
pub(crate) mod compare_erofs;
pub(crate) mod lookup;
pub(crate) mod shape;
