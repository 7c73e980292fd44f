//! The sandbox of a pod: what it is made from, whether the runtime has a network for it, and making it. Called by
//! [`super::steps`].

use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use cri_api::{Condition, DEFAULT_CNI_DIRECTORY, PodSandboxConfig, RuntimeStatus};
use image_manager::{EnsureImageRequest, PullPolicy};
use tokio::time::Instant;

use super::failure::{Halt, SyncStep};
use super::pod_sync::{PodSync, ReadySandbox};
use crate::config::{self, PodHostname, SandboxInput};
use crate::events::PodEvent;

/// Condition of the runtime that is true if pods get a network.
const NETWORK_READY: &str = "NetworkReady";

impl PodSync<'_> {
    /// Config of the sandbox with this attempt number.
    pub(super) fn sandbox_config(&self, attempt: u32) -> Result<(PodSandboxConfig, PodHostname), String> {
        let (pod, node) = (self.pod, &self.pod_runtime.parts().node);
        let hostname = config::pod_hostname(pod, &node.cluster_dns.domain).map_err(|error| error.to_string())?;
        let input = SandboxInput {
            attempt,
            dns: config::dns_config(pod, &node.dns, &node.cluster_dns),
            hostname: hostname.hostname.clone(),
            log_directory: config::pod_log_directory(&node.pod_logs, pod),
            cgroup_parent: node.cgroup_parent.clone(),
        };
        Ok((config::sandbox_config(pod, input), hostname))
    }

    pub(super) async fn create_sandbox(&mut self, attempt: u32) -> SyncStep<ReadySandbox> {
        self.network_ready().await?;
        let missing_image = self.ensure_sandbox_image().await?;
        self.go_on()?;
        let metrics = self.pod_runtime.metrics().clone();
        metrics.pod_starts();
        let (id, config, hostname) = match self.run_sandbox(attempt).await {
            Ok(made) => made,
            Err(error) => {
                metrics.pod_failed();
                self.pod_runtime.has_sandbox_image.store(false, Ordering::Relaxed);
                let error = missing_image.map_or_else(|| error.clone(), |missing| format!("{error} ({missing})"));
                self.record_pod_event(&PodEvent::FailedCreatePodSandBox(&error));
                return Err(Halt::Recorded(format!("create sandbox: {error}")));
            }
        };
        let ips = match self.pod_runtime.parts().runtime.pod_sandbox_status(&id, false).await {
            Ok(status) => self.addresses(status.ips().map(str::to_owned).collect()),
            Err(error) => {
                self.record_pod_event(&PodEvent::FailedPodSandBoxStatus(error.message()));
                return Err(Halt::Recorded(format!("ask for sandbox {id}: {error}")));
            }
        };
        Ok(ReadySandbox { id, config, hostname, ips })
    }

    /// Returns the present sandbox.
    pub(super) fn present_sandbox(&self, id: &str, attempt: u32) -> SyncStep<ReadySandbox> {
        let (config, hostname) = self.sandbox_config(attempt).map_err(Halt::Failed)?;
        Ok(ReadySandbox { id: id.to_owned(), config, hostname, ips: self.addresses(self.observed.ips().to_vec()) })
    }

    fn addresses(&self, of_sandbox: Vec<String>) -> Vec<String> {
        if self.pod.host_network() { self.pod_runtime.parts().node.context.host_ips.clone() } else { of_sandbox }
    }

    /// Runs a sandbox. A name that the runtime has reserved without listing its sandbox is skipped once, because the
    /// reservation may never end.
    async fn run_sandbox(&self, attempt: u32) -> Result<(String, PodSandboxConfig, PodHostname), String> {
        let handler = &self.pod.spec.runtime_class_name;
        let mut attempts = [attempt, attempt.saturating_add(1)].into_iter();
        let mut attempt = attempts.next().unwrap_or(attempt);
        loop {
            let (config, hostname) = self.sandbox_config(attempt)?;
            make_directory((&config.log_directory).into()).await?;
            let begun = Instant::now();
            let made = self.pod_runtime.parts().runtime.run_pod_sandbox(&config, handler).await;
            self.pod_runtime.metrics().sandbox(handler, begun.elapsed(), made.is_ok());
            match made {
                Ok(id) => return Ok((id, config, hostname)),
                Err(error) => match attempts.next().filter(|_| is_reserved(&error)) {
                    Some(next) => attempt = next,
                    None => return Err(error.message().to_owned()),
                },
            }
        }
    }

    /// Ensures the sandbox image with the mirrors and credentials of this node, which the runtime does not have. Returns the failure: the
    /// runtime may have the image all the same, or pull it.
    async fn ensure_sandbox_image(&self) -> SyncStep<Option<String>> {
        let (parts, is_ensured) = (self.pod_runtime.parts(), &self.pod_runtime.has_sandbox_image);
        if is_ensured.load(Ordering::Relaxed) {
            return Ok(None);
        }
        if let Some(image) = self.until_stopped((parts.sandbox_image)()).await? {
            let request =
                EnsureImageRequest { policy: PullPolicy::IfNotPresent, ..EnsureImageRequest::new(image.as_str()) };
            if let Err(error) = self.until_stopped(parts.images.ensure_image_exists(request)).await? {
                tracing::warn!(image, error = error.message(), "cannot ensure the sandbox image");
                return Ok(Some(format!("imagelet cannot pull the sandbox image {image} either: {}", error.message())));
            }
        }
        is_ensured.store(true, Ordering::Relaxed);
        Ok(None)
    }

    async fn network_ready(&mut self) -> SyncStep {
        if self.pod.host_network() {
            return Ok(());
        }
        let runtime = &self.pod_runtime.parts().runtime;
        let status = runtime.status(false).await;
        let status = status.map_err(|error| Halt::Failed(format!("ask for the status of the runtime: {error}")))?;
        if status.holds(NETWORK_READY) {
            self.pod_runtime.without_network.lock().remove(&self.owner.uid);
            return Ok(());
        }
        let reported = status.conditions.iter().find(|condition| condition.kind == NETWORK_READY);
        let Condition { status: ready, reason, message, .. } = reported.cloned().unwrap_or_default();
        let why = format!("{NETWORK_READY}={ready} reason:{reason} message:{message}");
        // Only the verbose status names the directory, and it is much longer.
        let remedy = network_remedy(&runtime.status(true).await.unwrap_or(status));
        let text = format!("network is not ready: container runtime network not ready: {why}; {remedy}");
        self.report.network_not_ready = true;
        if self.pod_runtime.without_network.lock().insert(self.owner.uid.clone()) {
            self.record_pod_event(&PodEvent::NetworkNotReady(&text));
        }
        Err(Halt::Recorded(text))
    }
}

/// An example of a CNI configuration, which the package installs.
const EXAMPLE_NETWORK: &str = "/usr/share/doc/imagelet/examples/10-pods.conflist";

/// Returns what to do about a network that is not ready: the runtime has no CNI configuration, or one that it cannot load.
#[must_use]
pub fn network_remedy(status: &RuntimeStatus) -> String {
    let cni = status.cni();
    let directory = cni.directory.unwrap_or_else(|| DEFAULT_CNI_DIRECTORY.to_owned());
    let remedy = format!(
        "the runtime needs a CNI configuration in {directory}, for example {EXAMPLE_NETWORK}; pods with hostNetwork: true \
         need none"
    );
    // Without any file the error is no more than the condition.
    match cni.load_error.filter(|error| !error.contains("no network config found")) {
        Some(error) => format!("{remedy} (the runtime reports: {error})"),
        None => remedy,
    }
}

/// Returns true if the runtime has reserved the requested name for another sandbox or container.
pub(super) fn is_reserved(error: &cri_api::Error) -> bool {
    error.message().contains("reserved")
}

/// Makes a directory with those above it.
pub(super) async fn make_directory(path: PathBuf) -> Result<(), String> {
    let shown = path.display().to_string();
    let made = base::blocking(move || std::fs::DirBuilder::new().recursive(true).mode(0o755).create(path)).await;
    match made {
        Some(Err(error)) => Err(format!("make directory {shown}: {error}")),
        Some(Ok(())) | None => Ok(()),
    }
}
