//! The store's files beside its records: the layout of its root, the lock, the reserve, deletion, and the sync of files. It knows no image.

pub(crate) mod confine;
pub(crate) mod flush;
pub(crate) mod ground;
pub(crate) mod layer;
pub(crate) mod layout;
pub(crate) mod lock;
pub(crate) mod part;
pub(crate) mod privilege;
pub(crate) mod remove_tree;
pub(crate) mod reserve;
pub(crate) mod usage;
pub(crate) mod young;
