//! Images as a whole: the commit, the conversion of their layers, and their removal.

pub(crate) mod commit;
pub(crate) mod convert;
pub(crate) mod plan;
pub(crate) mod remove;
