//! [`PodEvent`]: what happens to a pod and its containers, as the kubelet's events: type, reason and message, in one table.
//! Pulls have theirs in the image manager. Called by whatever acts on pods.

use image_manager::{EventRecorder, EventRef, EventType, ObjectRef};

/// An event of a pod or a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PodEvent<'a> {
    /// A container was made.
    Created,
    /// A container was started.
    Started,
    /// A container could not be made or started.
    Failed(&'a str),
    FailedPostStartHook,
    FailedPreStopHook,
    /// The start is delayed: the message of [`RestartWait`](crate::restart_backoff::RestartWait).
    BackOff(&'a str),
    /// The container is stopped. The message is that of its kill, empty where the whole pod is stopped.
    Killing {
        container: &'a str,
        /// Why; may be empty.
        message: &'a str,
    },
    /// A probe failed: its kind and output.
    Unhealthy {
        /// `Liveness`, `Readiness` or `Startup`.
        probe: &'a str,
        output: &'a str,
    },
    /// A probe succeeded with a warning: its kind and output.
    ProbeWarning {
        /// `Liveness`, `Readiness` or `Startup`.
        probe: &'a str,
        output: &'a str,
    },
    /// A probe could not be asked: which one, and why.
    ProbeErrored {
        /// `Liveness`, `Readiness` or `Startup`.
        probe: &'a str,
        error: &'a str,
    },
    /// The sandbox is replaced by a new one.
    SandboxChanged,
    /// A sandbox could not be made.
    FailedCreatePodSandBox(&'a str),
    /// The status of a sandbox could not be determined.
    FailedPodSandBoxStatus(&'a str),
    /// The network of the sandbox is not ready, with the reason.
    NetworkNotReady(&'a str),
    /// The pod is not valid.
    FailedValidation {
        /// Namespace and name.
        pod: &'a str,
        errors: &'a str,
    },
    /// Keys of a document are no names of variables: the text of [`SkippedKeys`](crate::environment::SkippedKeys).
    InvalidEnvironmentVariableNames(&'a str),
    /// A volume could not be made: the text of [`crate::volumes::VolumeSetupError`].
    FailedMount(&'a str),
    /// The pod ran longer than it may: the message of its end.
    DeadlineExceeded(&'a str),
    /// The pod is ended for want of disk: the message of its end.
    Evicted(&'a str),
    /// The pod cannot run on this node.
    Rejected {
        reason: &'static str,
        message: &'a str,
    },
}

impl PodEvent<'_> {
    /// Type, reason and message of the event.
    #[must_use]
    pub(crate) fn parts(&self) -> (EventType, &'static str, String) {
        use EventType::{Normal, Warning};
        let text = |text: &str| text.to_owned();
        match self {
            Self::Created => (Normal, "Created", text("Container created")),
            Self::Started => (Normal, "Started", text("Container started")),
            Self::Failed(error) => (Warning, "Failed", format!("Error: {error}")),
            Self::FailedPostStartHook => (Warning, "FailedPostStartHook", text("PostStartHook failed")),
            Self::FailedPreStopHook => (Warning, "FailedPreStopHook", text("PreStopHook failed")),
            Self::BackOff(message) => (Warning, "BackOff", text(message)),
            Self::Killing { container, message: "" } => (Normal, "Killing", format!("Stopping container {container}")),
            Self::Killing { message, .. } => (Normal, "Killing", text(message)),
            Self::Unhealthy { probe, output } => (Warning, "Unhealthy", format!("{probe} probe failed: {output}")),
            Self::ProbeWarning { probe, output } => {
                (Warning, "ProbeWarning", format!("{probe} probe warning: {output}"))
            }
            Self::ProbeErrored { probe, error } => {
                (Warning, "Unhealthy", format!("{probe} probe errored and resulted in unknown state: {error}"))
            }
            Self::SandboxChanged => {
                (Normal, "SandboxChanged", text("Pod sandbox changed, it will be killed and re-created."))
            }
            Self::FailedCreatePodSandBox(error) => {
                (Warning, "FailedCreatePodSandBox", format!("Failed to create pod sandbox: {error}"))
            }
            Self::FailedPodSandBoxStatus(error) => {
                (Warning, "FailedPodSandBoxStatus", format!("Unable to get pod sandbox status: {error}"))
            }
            Self::NetworkNotReady(message) => (Warning, "NetworkNotReady", text(message)),
            Self::FailedValidation { pod, errors } => {
                (Warning, "FailedValidation", format!("Error validating pod {pod}, ignoring: {errors}"))
            }
            Self::InvalidEnvironmentVariableNames(message) => {
                (Warning, "InvalidEnvironmentVariableNames", text(message))
            }
            Self::FailedMount(message) => (Warning, "FailedMount", text(message)),
            Self::DeadlineExceeded(message) => (Normal, "DeadlineExceeded", text(message)),
            Self::Evicted(message) => (Warning, "Evicted", text(message)),
            Self::Rejected { reason, message } => (Warning, reason, text(message)),
        }
    }

    /// Records the event about `object`.
    pub(crate) fn record(&self, events: &dyn EventRecorder, object: &ObjectRef) {
        let (kind, reason, message) = self.parts();
        events.record(EventRef { object, kind, reason, message: &message });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_kubelet() {
        let cases = [
            (PodEvent::Created, "Normal Created Container created"),
            (PodEvent::Failed("ErrImagePull"), "Warning Failed Error: ErrImagePull"),
            (PodEvent::Killing { container: "web", message: "" }, "Normal Killing Stopping container web"),
            (
                PodEvent::Killing {
                    container: "web",
                    message: "Container web failed liveness probe, will be restarted",
                },
                "Normal Killing Container web failed liveness probe, will be restarted",
            ),
            (PodEvent::SandboxChanged, "Normal SandboxChanged Pod sandbox changed, it will be killed and re-created."),
            (
                PodEvent::FailedCreatePodSandBox("no network"),
                "Warning FailedCreatePodSandBox Failed to create pod sandbox: no network",
            ),
            (
                PodEvent::Unhealthy { probe: "Liveness", output: "HTTP probe failed with statuscode: 500" },
                "Warning Unhealthy Liveness probe failed: HTTP probe failed with statuscode: 500",
            ),
            (
                PodEvent::ProbeErrored { probe: "Startup", error: "no runtime" },
                "Warning Unhealthy Startup probe errored and resulted in unknown state: no runtime",
            ),
            (
                PodEvent::ProbeWarning { probe: "Readiness", output: "moved" },
                "Warning ProbeWarning Readiness probe warning: moved",
            ),
            (PodEvent::FailedPostStartHook, "Warning FailedPostStartHook PostStartHook failed"),
            (PodEvent::BackOff("Back-off restarting"), "Warning BackOff Back-off restarting"),
        ];
        for (event, want) in cases {
            let (kind, reason, message) = event.parts();
            assert_eq!(format!("{} {reason} {message}", kind.as_str()), want);
        }
    }
}
