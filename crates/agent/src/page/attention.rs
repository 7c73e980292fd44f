//! [`Trouble`]: everything on the node that needs a person's attention, one entry for each failing pod, image or manifest, with a short
//! cause, the next retry and the command that shows more. Pure: a function of a [`Report`]. Called by [`super::health`] and
//! [`super::view`].

mod pod;
mod sets;
mod trouble;

use std::collections::BTreeMap;

use base::units;
use image_manager::{Cause, EndedPull, PullOutcome};

use super::report::Report;
pub(super) use sets::milliseconds_until;
use sets::{FailedImage, full_name};
pub(super) use trouble::{Retry, Subject, Trouble};
use trouble::{details, short, words};

/// Seconds for which a failed pull of a client is listed, unless a later pull succeeds.
const REMEMBERED: i64 = 3600;
/// Percent of the disk in use from which pulls are about to fail.
pub(super) const NEARLY_FULL: u64 = 95;

/// Returns everything that needs attention: images of pods and clients first, then pods, manifests, the disk and the image service, then
/// images of image sets. An image is listed once.
pub(super) fn troubles(report: &Report) -> Vec<Trouble> {
    let mut of_sets = sets::failed_images(report);
    let mut all = waiting_images(report);
    // The entry of an image for which pods wait names the pods.
    of_sets.retain(|image| !all.iter().any(|known| image.is(known)));
    all.extend(failed_images(report).into_iter().filter(|known| !of_sets.iter().any(|image| image.is(known))));
    if let Some(of) = &report.pods {
        let waits_for_image = |uid: &str| report.backoff.iter().flatten().any(|waiting| waiting.uid == uid);
        all.extend(
            of.pods
                .iter()
                .filter_map(|pod| pod::trouble(pod, &of.events, waits_for_image(&pod.metadata.uid), report.now)),
        );
        all.extend(of.refused.iter().map(|refused| Trouble {
            key: format!("refused {}", refused.origin),
            subject: Subject::Manifest(refused.pod.clone().unwrap_or_else(|| refused.origin.clone())),
            cause: format!("refused: {}", short(&refused.reason)),
            retry: Retry::Never,
            command: if refused.origin.starts_with('/') {
                words(&["explain", "-f", &refused.origin])
            } else {
                words(&["pods"])
            },
            details: details([refused.reason.as_str(), format!("from {}", refused.origin).as_str()]),
        }));
    }
    all.extend(disk(report));
    all.extend(report.inventory.problems.iter().map(|problem| Trouble {
        key: format!("service {problem}"),
        subject: Subject::Service,
        cause: short(problem),
        retry: Retry::Never,
        command: words(&["status"]),
        details: details([problem.as_str()]),
    }));
    all.extend(of_sets.into_iter().map(|image| image.trouble));
    all
}

impl FailedImage {
    /// Returns true if an entry is about the same image.
    fn is(&self, known: &Trouble) -> bool {
        matches!(&known.subject, Subject::Image(name, _) if self.names.contains(&full_name(name)))
    }
}

/// Returns the images in back-off, one entry for all pods that wait for an image.
fn waiting_images(report: &Report) -> Vec<Trouble> {
    let mut by_image: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for waiting in report.backoff.iter().flatten() {
        by_image.entry(&waiting.image).or_default().push(waiting);
    }
    let one = |(image, waiting): (&str, Vec<&crate::admin::backoff::WaitingImage>)| {
        let first = waiting.iter().min_by_key(|waiting| waiting.remaining_milliseconds)?;
        let failures = waiting.iter().map(|waiting| waiting.failures).max().unwrap_or_default();
        let times = if failures == 1 { "1 failed pull".to_owned() } else { format!("{failures} failed pulls") };
        let mut pods: Vec<String> =
            waiting.iter().map(|waiting| format!("{}/{}", waiting.namespace, waiting.pod)).collect();
        pods.sort();
        pods.dedup();
        Some(Trouble {
            key: format!("image {image}"),
            subject: Subject::Image(image.to_owned(), pods),
            cause: format!("{}, {times}", cause_words(&first.cause)),
            retry: Retry::In(first.remaining_milliseconds),
            command: command_of(&first.cause, image),
            details: details(waiting.iter().map(|waiting| waiting.message.as_str())),
        })
    };
    by_image.into_iter().filter_map(one).collect()
}

/// Returns the images whose last pull failed, in a process whose clients decide when to pull again.
fn failed_images(report: &Report) -> Vec<Trouble> {
    if report.backoff.is_some() {
        return Vec::new();
    }
    let mut last: BTreeMap<&str, &EndedPull> = BTreeMap::new();
    for pull in report.ended.iter().filter(|pull| pull.outcome != PullOutcome::Cancelled) {
        last.insert(&pull.image, pull);
    }
    let is_running = |image: &str| report.pulls.iter().any(|pull| pull.image == image);
    let from = report.now.as_second() - REMEMBERED;
    let failed = last.into_iter().filter(|(image, pull)| {
        pull.outcome == PullOutcome::Failed && pull.ended.as_second() >= from && !is_running(image)
    });
    let one = |(image, pull): (&str, &EndedPull)| {
        let cause = pull.cause.as_deref().unwrap_or_default();
        Trouble {
            key: format!("image {image}"),
            subject: Subject::Image(image.to_owned(), Vec::new()),
            cause: cause_words(cause).to_owned(),
            retry: Retry::OnRequest,
            command: command_of(cause, image),
            details: details(pull.message.as_deref()),
        }
    };
    failed.map(one).collect()
}

/// Returns the entry of a disk on which collection is due.
fn disk(report: &Report) -> Option<Trouble> {
    let disk = report.inventory.disk.as_ref()?;
    let (high, _) = report.inventory.thresholds;
    let high = u64::try_from(high).unwrap_or_default();
    let used = disk.used_percent.max(disk.inodes_used_percent);
    if used < high.min(NEARLY_FULL) {
        return None;
    }
    let what = if disk.inodes_used_percent > disk.used_percent { "of the inodes are in use" } else { "is in use" };
    let start = if high >= 100 {
        "collection by space is switched off".to_owned()
    } else {
        format!("collection starts at {high}%")
    };
    Some(Trouble {
        key: "disk".to_owned(),
        subject: Subject::Disk,
        cause: format!("{used}% {what}, {} free; {start}", units::bytes(disk.available_bytes)),
        retry: Retry::Never,
        command: words(&["gc", "--dry-run"]),
        details: Vec::new(),
    })
}

/// Returns the command that shows more about a failed pull.
fn command_of(cause: &str, image: &str) -> Vec<String> {
    match Cause::of_word(cause) {
        Some(Cause::DiskFull) => words(&["gc", "--dry-run"]),
        Some(Cause::Unauthenticated) => words(&["explain", "--check-credentials", image]),
        _ => words(&["explain", image]),
    }
}

/// Returns the words for the cause of a failed pull.
pub(super) fn cause_words(cause: &str) -> &'static str {
    match Cause::of_word(cause) {
        Some(Cause::NotFound) => "not found",
        Some(Cause::Unauthenticated) => "access denied",
        Some(Cause::RateLimited) => "rate limited by the registry",
        Some(Cause::Unavailable) => "registry not reachable",
        Some(Cause::DiskFull) => "disk full",
        Some(Cause::InvalidContent) => "invalid content",
        Some(Cause::SignatureInvalid) => "invalid signature",
        Some(Cause::Cancelled) => "cancelled",
        Some(Cause::Deadline) => "timed out",
        Some(Cause::Throttled) => "refused by registryPullQPS",
        Some(Cause::Other) | None => "pull failed",
    }
}

#[cfg(test)]
#[path = "attention_tests.rs"]
mod tests;
