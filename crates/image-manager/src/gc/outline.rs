//! [`Outline`]: a plan with the names of its images, for people, `-o json` and `gc explain`. Plain data.

use cri_api::Image;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::detect::handler;
use super::disk::DiskSpace;
use super::history::UsageHistory;
use super::plan::{Because, Plan};

/// The images that a round would remove and keep.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outline {
    /// Bytes to free.
    pub wanted_bytes: u64,
    /// Bytes that would be freed, as far as is known.
    pub frees_bytes: u64,
    /// True if that is known to the byte; otherwise shared layers count for each image, and a removal measures.
    pub exact: bool,
    /// The file system as it is, where it could be measured.
    #[serde(skip)]
    pub disk: Option<DiskSpace>,
    /// Percent of the file system used now, where it could be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_percent: Option<u64>,
    /// All images: first those to remove, in order, then the others.
    pub images: Vec<PlannedImage>,
}

/// An image in a collection plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedImage {
    /// Image ID as reported by the runtime.
    pub id: String,
    /// Names, tags first.
    pub names: Vec<String>,
    /// Size as reported by the image service.
    pub size_bytes: u64,
    /// Time since which the image is present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_detected: Option<Timestamp>,
    /// Time of the last use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_used: Option<Timestamp>,
    /// Last user, as `NAMESPACE/POD/CONTAINER`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub used_by: String,
    /// Time until which the image is removed only after all others, because it was pulled in advance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protected_until: Option<Timestamp>,
    /// `remove`, or the rule that keeps it.
    pub decision: String,
    /// Human-readable reason.
    pub why: String,
    /// Bytes that the removal frees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frees_bytes: Option<u64>,
}

impl PlannedImage {
    /// Returns true if the image would be removed.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.decision == "remove"
    }

    /// The first name of the image, or its id.
    #[must_use]
    pub fn title(&self) -> &str {
        self.names.first().unwrap_or(&self.id)
    }
}

/// Joins the plans of one round: what an earlier one removes is not the later ones' any more.
pub(super) fn outline(
    images: &[Image],
    history: &UsageHistory,
    plans: &[Plan],
    exact: bool,
    disk: Option<DiskSpace>,
) -> Outline {
    let mut rows: Vec<PlannedImage> = Vec::new();
    let mut gone = vec![false; images.len()];
    let (mut wanted, mut frees) = (0_u64, 0_u64);
    for plan in plans {
        wanted = wanted.max(plan.wanted);
        for removal in &plan.remove {
            if std::mem::replace(&mut gone[removal.image], true) {
                continue;
            }
            frees = frees.saturating_add(removal.frees);
            let image = row(&images[removal.image], history, "remove", removal.why(), Some(removal.frees));
            rows.push(PlannedImage { protected_until: removal.protected_until, ..image });
        }
    }
    let last = plans.last().map(|plan| plan.kept.as_slice()).unwrap_or_default();
    for kept in last.iter().filter(|kept| !gone[kept.image]) {
        let image = row(&images[kept.image], history, kept.because.word(), kept.because.to_string(), None);
        let protected_until = match kept.because {
            Because::Protected { until } => Some(until),
            _ => None,
        };
        rows.push(PlannedImage { protected_until, ..image });
    }
    let used_percent = disk.map(DiskSpace::used_percent);
    Outline { wanted_bytes: wanted, frees_bytes: frees, exact, disk, used_percent, images: rows }
}

fn row(image: &Image, history: &UsageHistory, decision: &'static str, why: String, frees: Option<u64>) -> PlannedImage {
    let record = history.get(&image.id, handler(image));
    PlannedImage {
        id: image.id.clone(),
        names: image.repo_tags.iter().chain(&image.repo_digests).cloned().collect(),
        size_bytes: image.size,
        first_detected: record.map(|record| record.first_detected),
        last_used: record.and_then(|record| record.last_used),
        used_by: record.map(|record| record.used_by.to_string()).unwrap_or_default(),
        protected_until: None,
        decision: decision.to_owned(),
        why,
        frees_bytes: frees,
    }
}
