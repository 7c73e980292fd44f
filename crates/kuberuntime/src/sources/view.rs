//! [`View`]: what one source has now.

use std::sync::Arc;

use super::manifest::Content;
use super::problem::Problem;

/// What one source has now.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    /// Whether it knows what it has.
    pub(super) ready: bool,
    /// What is wrong with the source as a whole, and what people call it.
    pub(super) problem: Option<(String, Problem)>,
    /// Its manifests, in their order.
    pub(super) manifests: Vec<Manifest>,
}

/// One file or answer.
#[derive(Clone, Debug)]
pub(super) struct Manifest {
    pub(super) origin: String,
    /// When it was first there.
    pub(super) since: tokio::time::Instant,
    /// What was last good in it.
    pub(super) content: Option<Arc<Content>>,
    /// Whether it says something that is not known: it cannot be read, is not valid, or is being written.
    pub(super) held: bool,
    /// What is wrong with it, once that has lasted.
    pub(super) problem: Option<Problem>,
}
