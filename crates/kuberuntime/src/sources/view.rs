//! [`View`]: what one source has now.

use std::sync::Arc;

use super::manifest::Content;
use super::problem::Problem;

/// Present content of one source.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    /// True once the source knows its content.
    pub(super) ready: bool,
    /// Problem of the source as a whole, with the source's name for people.
    pub(super) problem: Option<(String, Problem)>,
    /// Manifests, in their order.
    pub(super) manifests: Vec<Manifest>,
}

/// A file, or the answer of an address.
#[derive(Clone, Debug)]
pub(super) struct Manifest {
    pub(super) origin: String,
    /// When it was first there.
    pub(super) since: tokio::time::Instant,
    /// Last valid content.
    pub(super) content: Option<Arc<Content>>,
    /// True if the present content is not known: it cannot be read, is not valid, or is being written.
    pub(super) held: bool,
    /// The problem, once it has lasted.
    pub(super) problem: Option<Problem>,
}
