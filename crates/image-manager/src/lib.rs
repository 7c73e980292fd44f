//! Decides what happens between a pod's image and the runtime: [`ImageManager::ensure_image_exists`] is the kubelet's
//! image manager, behind any [`ImageService`](cri_api::ImageService).
//!
//! It decides, queues, records events and keeps causes; the service transfers the bytes. It knows no gRPC, no HTTP, no
//! Kubernetes client types and no wall clock. The binary and the pod sync call it.
//!
//! The way of a request: [`request`](EnsureImageRequest) → presence → access → [`decide`] (pure) → back-off → puller →
//! events.
//!
//! ```
//! use imagelet_image_manager::{Access, AccessUnverified, Decision, Grant, Presence, PullPolicy, decide};
//!
//! let present = Presence::Present { image_ref: "sha256:44136fa3".to_owned() };
//! let own = decide(PullPolicy::IfNotPresent, present.clone(), Access::Granted(Grant::CredentialMatches));
//! assert!(matches!(own, Decision::UseLocal { .. }));
//! // Another tenant pulled the image: the registry has to accept the credentials of this pod.
//! let foreign = Access::MustVerify(AccessUnverified::NoMatchingCredential);
//! assert!(matches!(decide(PullPolicy::IfNotPresent, present, foreign), Decision::Pull(_)));
//! ```
#![deny(missing_docs)]

mod backoff;
mod cause;
mod clock;
mod credential_lookup;
mod error;
mod events;
mod explain;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod gc;
mod instrumented;
mod instrumented_runtime;
mod manager;
mod metrics;
mod namespace_access;
mod object_ref;
mod options;
mod outcome;
mod policy;
mod pull;
mod pull_decision;
mod reclaim_space;
mod records;
mod request;
mod requested_image;
mod requested_name;
mod sandbox_image;

/// Credentials in a request.
pub use credentials::{Origin, PullSecret, ServiceAccount};

pub use backoff::{BackoffEntry, BackoffOptions, BackoffSelector};
pub use cause::Cause;
pub use clock::{Clock, WallClock};
pub use error::{Attempt, EnsureImageError, PullFailure};
pub use events::{Event, EventRecorder, EventRef, EventType, LogRecorder, NumberedEvent, Recorders, RingRecorder};
pub use explain::{BackoffExplanation, Explanation};
pub use instrumented::Instrumented;
pub use instrumented_runtime::InstrumentedRuntime;
pub use manager::ImageManager;
pub use metrics::{Metrics, MustPullResult, Operation, RecordKind};
pub use namespace_access::{NamespaceAccess, NamespaceGrants};
pub use object_ref::{ObjectRef, PodRef};
pub use options::{Options, RegistryFingerprint};
pub use policy::{PullPolicy, UnknownPullPolicy};
pub use pull::{
    ENDED_PULLS, EndedPull, LayerInFlight, PullBoard, PullInFlight, PullOutcome, PullStep, PullerOptions, WantedBy,
    WatchedPulls,
};
pub use pull_decision::{
    Access, AccessUnverified, Decision, Grant, Presence, PullReason, RefuseReason, UseLocalReason, decide,
};
pub use reclaim_space::{ImageHold, ReclaimSpace, ReclaimedSpace};
pub use records::{
    Allowlist, AllowlistError, PullIntent, PullRecords, RecordsError, RecordsOptions, VerificationPolicy,
};
pub use request::{EnsureImageRequest, EnsuredImage, PullTiming};
pub use sandbox_image::SandboxImageLookup;
