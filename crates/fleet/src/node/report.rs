//! [`report`]: the status of a node's `NodeImages`, from the sets that the node follows and the states of their images. Pure. A set that
//! fetches images is reported as pulling, also if one of its images failed. [`limited`] is the part that fits into the object. Called by
//! [`super::model`] and [`super::daemon`].

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::desired::{Desired, ImageKey};
use super::followed::FollowedSet;
use super::states::ImageStates;
use crate::api::{
    DiskReport, ImagePhase, ImageReport, MAX_MESSAGE, MAX_REPORTED_IMAGES, NodeImagesStatus, ResolvedImage, SetPhase,
    SetReport, TransferredBytes,
};

/// Largest number of sets in a report.
const MAX_SETS: usize = 1000;

/// The parts of a report that are not states of images.
#[derive(Clone, Debug)]
pub(super) struct ReportContext<'a> {
    pub(super) now: Timestamp,
    pub(super) version: &'a str,
    pub(super) disk: Option<DiskReport>,
    /// The condition of the last report.
    pub(super) before: Option<&'a Condition>,
}

/// Returns the report of this node, with all images.
pub(super) fn report<'a>(
    sets: impl IntoIterator<Item = &'a FollowedSet>,
    desired: &Desired,
    states: &ImageStates,
    context: &ReportContext<'_>,
) -> NodeImagesStatus {
    let (mut set_reports, mut images) = (Vec::new(), Vec::new());
    for set in sets {
        let rows: Vec<ImageReport> = set.images.iter().map(|image| of_image(set, image, desired, states)).collect();
        set_reports.push(of_set(set, &rows, desired));
        images.extend(rows);
    }
    // The sort is stable: images keep the order of their set.
    images.sort_by_key(|image| image.phase == ImagePhase::Ready);
    let condition = ready(&set_reports, context);
    NodeImagesStatus {
        report_time: Some(Time(context.now)),
        agent_version: Some(shortened(context.version, 64)),
        sets: set_reports,
        images,
        disk: context.disk,
        conditions: vec![condition],
    }
}

/// Returns the sets and images of a report that fit into the object.
pub(super) fn limited(report: &NodeImagesStatus) -> NodeImagesStatus {
    NodeImagesStatus {
        sets: report.sets.iter().take(MAX_SETS).cloned().collect(),
        images: report.images.iter().take(MAX_REPORTED_IMAGES).cloned().collect(),
        report_time: report.report_time.clone(),
        agent_version: report.agent_version.clone(),
        disk: report.disk,
        conditions: report.conditions.clone(),
    }
}

fn of_image(set: &FollowedSet, image: &ResolvedImage, desired: &Desired, states: &ImageStates) -> ImageReport {
    let key = ImageKey::of(image);
    let wanted = desired.images.get(&key);
    let state = states.get(&key);
    let mut row = ImageReport {
        set: set.name.clone(),
        name: image.name.clone(),
        digest: key.digest.as_ref().map(ToString::to_string),
        pinned: wanted.is_some_and(|wanted| wanted.pin),
        ..ImageReport::default()
    };
    if let Some(state) = state {
        row.phase = state.phase;
        row.reason.clone_from(&state.reason);
        row.message = state.message.as_deref().map(|message| shortened(message, MAX_MESSAGE));
        row.bytes = state.bytes;
        row.attempts = state.attempts;
        row.retry_at = state.retry.map(|retry| Time(retry.wall));
    }
    let obstacle = wanted.and_then(|wanted| wanted.obstacle.as_ref()).filter(|_| set.released);
    if let Some(obstacle) = obstacle.filter(|_| row.phase == ImagePhase::Waiting) {
        row.phase = ImagePhase::Failed;
        row.reason = Some(shortened(&obstacle.reason, 64));
        row.message = Some(shortened(&obstacle.message, MAX_MESSAGE));
    }
    row
}

fn of_set(set: &FollowedSet, rows: &[ImageReport], desired: &Desired) -> SetReport {
    let ready = rows.iter().filter(|row| row.phase == ImagePhase::Ready).count();
    let wanted = |row: &ImageReport| {
        let image = set.images.iter().find(|image| image.name == row.name)?;
        desired.images.get(&ImageKey::of(image))
    };
    let is_queued = |row: &ImageReport| match (row.phase, wanted(row)) {
        (ImagePhase::Waiting, Some(image)) => image.may_start && image.obstacle.is_none(),
        (ImagePhase::Gone, Some(image)) => image.stays,
        (phase, _) => phase == ImagePhase::Pulling,
    };
    // An image that cannot be resolved is the controller's to report. It does not keep the node from its end.
    let open = rows.iter().filter(|row| wanted(row).is_none_or(|image| image.obstacle.is_none()));
    let is_complete = open.clone().all(|row| row.phase == ImagePhase::Ready);
    let phase = if is_complete && (set.released || ready == rows.len()) {
        SetPhase::Ready
    } else if rows.iter().any(is_queued) {
        SetPhase::Pulling
    } else if open.clone().any(|row| matches!(row.phase, ImagePhase::Failed | ImagePhase::Gone)) {
        SetPhase::Failed
    } else {
        SetPhase::Waiting
    };
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    SetReport {
        name: set.name.clone(),
        uid: set.uid.clone(),
        generation: set.generation,
        phase,
        images: number(rows.len()),
        ready: number(ready),
        bytes: rows.iter().fold(TransferredBytes::default(), |sum, row| add(sum, row.bytes)),
    }
}

fn add(one: TransferredBytes, other: TransferredBytes) -> TransferredBytes {
    TransferredBytes {
        total: one.total.saturating_add(other.total),
        done: one.done.saturating_add(other.done),
        from_registry: one.from_registry.saturating_add(other.from_registry),
        from_mirrors: one.from_mirrors.saturating_add(other.from_mirrors),
    }
}

/// Returns the condition `Ready`, with the time of its last change.
fn ready(sets: &[SetReport], context: &ReportContext<'_>) -> Condition {
    let names = |phase: SetPhase| -> Vec<&str> {
        sets.iter().filter(|set| set.phase == phase).map(|set| set.name.as_str()).collect()
    };
    let (pulling, failed, waiting) = (names(SetPhase::Pulling), names(SetPhase::Failed), names(SetPhase::Waiting));
    let (status, reason, message) = if sets.is_empty() {
        ("True", "NoImageSets", "no ImageSet selects this node".to_owned())
    } else if !pulling.is_empty() {
        ("False", "Pulling", format!("pulling images of {}", pulling.join(", ")))
    } else if !failed.is_empty() {
        ("False", "Failed", format!("images are missing of {}", failed.join(", ")))
    } else if !waiting.is_empty() {
        ("False", "Waiting", format!("waiting for the release of {}", waiting.join(", ")))
    } else {
        ("True", "Complete", "every image of every ImageSet is present".to_owned())
    };
    let unchanged = context.before.filter(|before| before.status == status);
    Condition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: shortened(&message, 1024),
        last_transition_time: unchanged.map_or(Time(context.now), |before| before.last_transition_time.clone()),
        observed_generation: None,
    }
}

/// Returns the beginning of a text with at most this many characters.
fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
