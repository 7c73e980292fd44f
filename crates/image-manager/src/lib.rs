//! Decides what happens between a pod's image and the runtime: [`ImageManager::ensure_image_exists`] is the kubelet's
//! image manager, behind any [`ImageService`](cri_api::ImageService).
//!
//! It decides, queues, tells events and keeps causes; bytes are the service's work. It knows no gRPC, no HTTP, no
//! Kubernetes client types and no wall clock. The binary and the pod sync call it.
//!
//! The way of a request: [`request`](EnsureImageRequest) → presence → [`decide`] (pure) → puller → events. Credential
//! lookup, pull records and back-off stand between these steps in the kubelet; here they enter as
//! [`EnsureImageRequest::credentials`] and [`Access`].

mod attempts;
mod cause;
mod decide;
mod error;
mod events;
mod explain;
mod go_duration;
mod instrumented;
mod manager;
mod metrics;
mod outcome;
mod policy;
#[expect(dead_code, unused_imports, unreachable_pub, reason = "the manager still uses the old puller beside it")]
mod pull;
mod puller;
mod records;
mod request;

pub use cause::Cause;
pub use decide::{Access, Decision, Doubt, Grant, Presence, PullReason, RefuseReason, UseLocalReason, decide};
pub use error::{Attempt, EnsureImageError, PullFailure};
pub use events::{Event, EventRecorder, EventType, LogRecorder, NumberedEvent, ObjectRef, Recorders, RingRecorder};
pub use explain::Explanation;
pub use instrumented::Instrumented;
pub use manager::{Clock, ImageManager, Options};
pub use metrics::{Metrics, MustPullResult, Operation, RecordKind};
pub use policy::{PullPolicy, UnknownPullPolicy};
pub use puller::PullerOptions;
pub use records::{
    Allowlist, AllowlistError, PullIntent, PullRecords, RecordsError, RecordsOptions, VerificationPolicy, WallClock,
};
pub use request::{EnsureImageRequest, EnsuredImage, PodRef, PullTiming};
