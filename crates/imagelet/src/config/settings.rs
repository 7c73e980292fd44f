//! The settings by topic, each a field of a type: see [`super::setting`].

pub(crate) mod access;
pub(crate) mod cluster;
pub(crate) mod collection;
pub(crate) mod engine;
pub(crate) mod fleet;
pub(crate) mod pods;
pub(crate) mod pulls;
pub(crate) mod status_page;
pub(crate) mod traces;
