//! Images as a whole: the commit, the conversion of their layers, and their removal.

pub(crate) mod commit;
pub(crate) mod convert;
pub(crate) mod find_stack;
pub(crate) mod image_commit;
pub(crate) mod plan;
pub(crate) mod remove;
pub(crate) mod step;
pub(crate) mod verify_digests;
