//! The settings by topic, each declared once: see [`super::declare`].

pub(crate) mod access;
pub(crate) mod cluster;
pub(crate) mod collection;
mod engine;
pub(crate) mod pods;
pub(crate) mod pulls;
pub(crate) mod status_page;
pub(crate) mod traces;
