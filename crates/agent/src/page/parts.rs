//! [`PageParts`]: the parts of a process from which its page answers, passed in by the process that starts it. Plain data.

use std::sync::Arc;

use image_manager::{ImageManager, PullBoard};

use crate::admin::image_sets::ImageSets;
use crate::collection::Collection;
use crate::node::board::PodBoard;

/// The parts that the page answers from. Those that are `None` are not in this process.
pub struct PageParts {
    /// The name of the node.
    pub node_name: String,
    /// The images.
    pub collection: Arc<Collection>,
    /// Pulls that run and that ended.
    pub pulls: PullBoard,
    /// The manager that keeps back-off.
    pub manager: Option<Arc<ImageManager>>,
    /// The pods that this process runs.
    pub pods: Option<PodBoard>,
    /// The image sets that this node follows.
    pub image_sets: Option<ImageSets>,
}
