//! Recovery of intents that killed processes left. [`PullRecords::recover`](super::PullRecords::recover) calls it.

use std::collections::{BTreeSet, HashMap};

use cri_api::Image;
use jiff::SignedDuration;
use oci::trim_tag_and_digest;

use super::RecordsError;
use super::inner::Inner;
use super::pulling::normal;

/// After this time a runtime no longer works on a pull without a caller.
const OVER: SignedDuration = SignedDuration::from_hours(24);

/// The ids of all images on the node, by name.
#[derive(Debug, Default)]
pub(super) struct Images {
    by_name: HashMap<String, BTreeSet<String>>,
}

impl Images {
    /// Every tag and digest, as the runtime spells it and in normal form.
    pub(super) fn of(images: &[Image]) -> Self {
        let mut all = Self::default();
        for image in images {
            for name in image.repo_tags.iter().chain(&image.repo_digests) {
                for name in [Some(name.clone()), normal(name)].into_iter().flatten() {
                    all.by_name.entry(name).or_default().insert(image.id.clone());
                }
            }
        }
        all
    }

    fn ids(&self, image: &str) -> BTreeSet<&str> {
        let normal = normal(image);
        [Some(image), normal.as_deref()]
            .into_iter()
            .flatten()
            .filter_map(|name| self.by_name.get(name))
            .flatten()
            .map(String::as_str)
            .collect()
    }
}

/// Blocks.
pub(super) fn recover(inner: &Inner, images: &Images) -> Result<usize, RecordsError> {
    let mut recovered = 0;
    let mut failed = None;
    for image in inner.pulling.images()? {
        match recover_one(inner, images, &image) {
            Ok(true) => recovered += 1,
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, image = &*image, "a pull intent could not be made a record");
                failed = failed.or(Some(error));
            }
        }
    }
    inner.recount()?;
    match failed {
        Some(error) => Err(error),
        None => Ok(recovered),
    }
}

fn recover_one(inner: &Inner, images: &Images, image: &str) -> Result<bool, RecordsError> {
    let ids = images.ids(image);
    if ids.is_empty() {
        if inner.pulling.release_if_older(image, inner.pulled.now() - OVER)? {
            tracing::debug!(image, "an old interrupted pull has not made its image present");
        }
        return Ok(false);
    }
    if inner.pulling.is_held(image)? {
        return Ok(false);
    }
    let name = trim_tag_and_digest(image).ok();
    for id in ids {
        inner.update(id, name.as_deref(), None)?;
    }
    let removed = inner.pulling.release(image, None)?;
    tracing::info!(
        image,
        "an interrupted pull has made its image present: the registry is asked before the image is used"
    );
    Ok(removed)
}
