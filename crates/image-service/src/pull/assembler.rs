//! [`Assembler`]: the parts of the engine and of the image that getting its layers works with. Its steps: [`super::run`] drives,
//! [`super::planning`] reads the config, [`super::access`] decides on present layers, [`super::wait`] joins and starts jobs.

use std::collections::BTreeSet;
use std::sync::Arc;

use oci::Digest;
use tokio_util::sync::CancellationToken;

use crate::budgets::PullAccount;
use crate::destination::image::NewImage;
use crate::destination::{ImageWriter, LayerEventSender};
use crate::parts::EngineParts;
use crate::progress::Hub;
use crate::source::Source;

/// Gets all layers of an image.
pub(super) struct Assembler<'a> {
    pub(super) parts: &'a Arc<EngineParts>,
    pub(super) source: &'a Arc<dyn Source>,
    pub(super) writer: &'a Arc<dyn ImageWriter>,
    pub(super) image: &'a NewImage,
    pub(super) hub: &'a Hub,
    pub(super) token: &'a CancellationToken,
    /// Chains for which a layer must be unpacked alone.
    pub(super) exclusive: &'a BTreeSet<Digest>,
    /// The account that the memory of its jobs is charged to.
    pub(super) account: PullAccount,
    /// Sends the layers to the writer as they become ready.
    pub(super) events: LayerEventSender,
}
