//! The objects of the group `imagelet.dev/v1alpha1`: [`ImageSet`] declares images for nodes, [`NodeImages`] reports what one node
//! has, [`Fleet`] has what all sets share. Plain types with their schemas; no rules of a rollout, no requests.

mod fleet;
mod image_set;
mod image_set_status;
mod node_images;
mod pull_policy;
mod schemas;
mod values;

pub use fleet::{Fleet, FleetSpec, FleetStatus, StartupTaint};
pub use image_set::{
    Access, ImageSet, ImageSetSpec, Mode, OnDelete, OnFailure, Resolution, Rollout, SecretReference, SetImage,
};
pub use image_set_status::{
    CompletedRollout, FailureGroup, ImageSetStatus, NodeCounts, NodeCursor, ResolvedImage, TransferredBytes,
};
pub use node_images::{
    DiskReport, ImagePhase, ImageReport, NodeImages, NodeImagesSpec, NodeImagesStatus, SetPhase, SetReport,
};
pub use pull_policy::PullPolicy;
pub use values::{MinFree, ValueError, decode, share_of};

/// API group of the objects.
pub const GROUP: &str = "imagelet.dev";
/// API version of the objects.
pub const VERSION: &str = "v1alpha1";
/// Both, as `apiVersion` of an object.
pub const GROUP_VERSION: &str = "imagelet.dev/v1alpha1";
/// Name of the only [`Fleet`].
pub const FLEET: &str = "default";
/// Key of the taint with which a node registers until the images that it needs first are present.
pub const STARTUP_TAINT: &str = "imagelet.dev/images-not-ready";
/// Largest number of images in one set.
pub const MAX_IMAGES: usize = 500;
/// Largest number of images in the report of a node.
pub const MAX_REPORTED_IMAGES: usize = 300;
/// Largest number of failure groups in the status of a set.
pub const MAX_FAILURES: usize = 20;
/// Longest message in a status, in characters.
pub const MAX_MESSAGE: usize = 256;
