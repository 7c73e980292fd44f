//! Failed images of image sets: one entry for each image, whichever sets name it, since the node pulls it once for all of them. Pure.
//! Called by [`super::troubles`].

use std::collections::BTreeMap;

use jiff::Timestamp;
use oci::Reference;

use super::trouble::{Retry, Subject, Trouble, details, words};
use crate::admin::image_sets::{ImageSetImage, ImageSetImagePhase};
use crate::page::report::Report;

/// A failed image, with the names under which its pulls are listed elsewhere.
pub(super) struct FailedImage {
    pub(super) names: Vec<String>,
    pub(super) trouble: Trouble,
}

/// Returns the failed images of all sets, by name.
pub(super) fn failed_images(report: &Report) -> Vec<FailedImage> {
    let mut by_image: BTreeMap<String, Vec<(&str, &ImageSetImage)>> = BTreeMap::new();
    for set in report.image_sets.sets() {
        for image in set.images.iter().filter(|image| image.phase == ImageSetImagePhase::Failed) {
            by_image.entry(full_name(&image.name)).or_default().push((&set.name, image));
        }
    }
    by_image.into_iter().filter_map(|(name, entries)| failed(name, &entries, report.now)).collect()
}

fn failed(name: String, entries: &[(&str, &ImageSetImage)], now: Timestamp) -> Option<FailedImage> {
    let (_, first) = entries.first()?;
    let reason = first.reason.as_deref().unwrap_or("Failed");
    let cause = match first.attempts {
        0 => reason.to_owned(),
        1 => format!("{reason}, 1 failed pull"),
        attempts => format!("{reason}, {attempts} failed pulls"),
    };
    let digest = first.digest.as_deref().and_then(|digest| digest.parse().ok());
    let by_digest = Reference::parse(&name).ok().zip(digest).map(|(name, digest)| name.at_digest(digest).to_string());
    let command = if reason == "InsufficientSpace" { words(&["gc", "--dry-run"]) } else { words(&["explain", &name]) };
    let trouble = Trouble {
        key: format!("image {name}"),
        subject: Subject::SetImage(name.clone(), entries.iter().map(|(set, _)| (*set).to_owned()).collect()),
        cause,
        retry: first.retry_at.map_or(Retry::Never, |at| Retry::In(milliseconds_until(at, now))),
        command,
        details: details(entries.iter().filter_map(|(_, image)| image.message.as_deref())),
    };
    Some(FailedImage { names: std::iter::once(name).chain(by_digest).collect(), trouble })
}

/// Returns the name of an image with its registry and tag, as pulls are listed.
pub(super) fn full_name(name: &str) -> String {
    Reference::parse(name).map_or_else(|_| name.to_owned(), |reference| reference.with_default_tag().to_string())
}

/// Returns the time until the next attempt; 0 if it is due.
pub(in crate::page) fn milliseconds_until(at: Timestamp, now: Timestamp) -> u64 {
    u64::try_from(at.as_millisecond().saturating_sub(now.as_millisecond())).unwrap_or(0)
}
