//! Requests to the manager, and its answers. Plain data; the edges make it of manifests and of flags.

use std::time::Duration;

use credentials::{PullSecret, Requester, ServiceAccount, Source};
use cri_api::{PodSandboxConfig, ProgressSink};

use crate::{ObjectRef, PodRef, PullPolicy};

/// A request for an image.
#[derive(Clone, Debug)]
pub struct EnsureImageRequest {
    /// The pod that wants the image: back-off and credentials are by it. Empty where no pod is known.
    pub pod: PodRef,
    /// Object of the events; `None`: events are only logged.
    pub object: Option<ObjectRef>,
    /// The image as the user wrote it.
    pub image: String,
    /// When to pull; [`PullPolicy::default_for`] is the default of the API server.
    pub policy: PullPolicy,
    /// The pod's pull secrets, in the order in which it names them.
    pub secrets: Vec<PullSecret>,
    /// The pod's service account, where it has one: credential providers may answer for it.
    pub service_account: Option<ServiceAccount>,
    /// Names of the pod's pull secrets that were not found. An event reports them before a pull.
    pub missing_secrets: Vec<String>,
    /// Priority of the pod: among waiting pulls the one with the higher priority is first.
    pub priority: i32,
    /// Runtime handler of the pod; empty is the default one.
    pub runtime_handler: String,
    /// The pod's sandbox, where there is one.
    pub sandbox: Option<PodSandboxConfig>,
    /// Receives the progress of a pull.
    pub progress: ProgressSink,
}

impl EnsureImageRequest {
    /// A request for `image` with the policy that the API server would fill in, and nothing else.
    #[must_use]
    pub fn new(image: impl Into<String>) -> Self {
        let image = image.into();
        Self {
            pod: PodRef::default(),
            object: None,
            policy: PullPolicy::default_for(&image),
            image,
            secrets: Vec::new(),
            service_account: None,
            missing_secrets: Vec::new(),
            priority: 0,
            runtime_handler: String::new(),
            sandbox: None,
            progress: ProgressSink::default(),
        }
    }

    /// The pod, as the keyring wants to know it.
    #[must_use]
    pub fn requester(&self) -> Requester {
        Requester {
            namespace: self.pod.namespace.clone(),
            name: self.pod.name.clone(),
            uid: self.pod.uid.clone(),
            secrets: self.secrets.clone(),
            service_account: self.service_account.clone(),
        }
    }
}

/// An image that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnsuredImage {
    /// Image ref of the runtime: containers are created from this.
    pub image_ref: String,
    /// The message of the last event: for people.
    pub message: String,
    /// True if the image was pulled for this request.
    pub pulled: bool,
    /// Source of the credential that worked; `None` for an anonymous pull, or if there was no pull.
    pub credential: Option<Source>,
    /// Times of the pull; `None` if there was no pull.
    pub timing: Option<PullTiming>,
    /// Size in bytes, where it was asked for and is known.
    pub size: Option<u64>,
}

/// How long a pull took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullTiming {
    /// The pull itself, every attempt included.
    pub pulling: Duration,
    /// The same with the wait for a turn.
    pub with_waiting: Duration,
}
