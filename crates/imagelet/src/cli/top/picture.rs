//! [`Picture`]: the state of an agent as `imagelet top` shows it. Plain data. Made by `top` from the answers of the admin API.

use image_manager::{EndedPull, PullInFlight};
use jiff::Timestamp;

/// The state of an agent.
#[derive(Clone, Debug, Default)]
pub(super) struct Picture {
    pub(super) now: Timestamp,
    /// A label of the agent.
    pub(super) agent: String,
    pub(super) pulls: Vec<PullInFlight>,
    /// The pulls that ended last, the latest first.
    pub(super) ended: Vec<EndedPull>,
    /// Number of images.
    pub(super) image_count: Option<u64>,
    /// The images by name; empty where they are not listed.
    pub(super) images: Vec<cri_api::Image>,
    pub(super) disk: Option<DiskFigures>,
    pub(super) has_pressure: bool,
    /// `None` where the agent runs no pods.
    pub(super) pods: Option<Vec<PodFigures>>,
    /// Reason for which the figures are outdated.
    pub(super) problem: Option<String>,
}

/// The file system of the images.
#[derive(Clone, Debug, Default)]
pub(super) struct DiskFigures {
    pub(super) path: String,
    pub(super) capacity: u64,
    pub(super) available: u64,
    pub(super) images: Option<u64>,
}

/// A pod.
#[derive(Clone, Debug, Default)]
pub(super) struct PodFigures {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) ready: String,
    pub(super) is_ready: bool,
    pub(super) status: String,
    pub(super) restarts: u32,
    pub(super) created: Option<Timestamp>,
    pub(super) containers: Vec<ContainerFigures>,
}

/// A container of a pod.
#[derive(Clone, Debug, Default)]
pub(super) struct ContainerFigures {
    pub(super) name: String,
    pub(super) image: String,
    /// The state in a few words, with the reason.
    pub(super) state: String,
    pub(super) restarts: u32,
}
