//! The part of a fleet for people at a shell: requests with the user's credentials, the picture of a rollout, and the explanation of one image
//! on one node. The picture and the explanation are pure; nothing is printed. The commands of the binary call it.

mod explanation;
mod manifest;
mod picture;
mod requests;
mod selection;

pub use explanation::{Explanation, Report, SetExplanation, Step, WhyFacts, explain};
pub use manifest::{FleetManifest, SetManifest, problems};
pub use picture::{ConditionState, ImageState, RolloutPicture, SlowNode, Verdict, verdict};
pub use requests::{Applied, FieldConflict, FleetRequests, NodeFacts, RequestError};
