//! Whole images in the engine's store that a pull would not change.

use cri_api::{LayerState, Result};
use oci::{Digest, ImageConfig, Reference};
use signature::Signature;
use store::ImageRecord;

use super::choose::{Chosen, runs_on};
use super::image::Names;
use crate::parts::EngineParts;
use crate::progress::Hub;
use crate::signatures::evidence;

/// Returns the image that a reference with a digest names, if it is present, whole, accepted by the signature policy, and runs on
/// the engine's platform.
pub(crate) async fn by_digest(parts: &EngineParts, reference: &Reference) -> Result<Option<Digest>> {
    if reference.digest().is_none() {
        return Ok(None);
    }
    let runs = |image: &ImageRecord| {
        ImageConfig::parse(&image.config).is_ok_and(|config| runs_on(&config, &parts.options.platform))
    };
    Ok(parts.policy.find_usable(reference.to_string()).await?.filter(runs).map(|image| image.id))
}

/// Returns the present image if a pull would change nothing.
pub(crate) async fn unchanged(
    parts: &EngineParts,
    chosen: &Chosen,
    names: &Names,
    signatures: &[Signature],
) -> Result<Option<ImageRecord>> {
    let image = parts.content.find_whole(chosen.manifest.config.digest.to_string()).await?;
    let named = |set: &std::collections::BTreeSet<String>, name: &Option<String>| {
        name.as_ref().is_none_or(|name| set.contains(name))
    };
    Ok(image.filter(|image| {
        image.manifest_digest == chosen.raw.digest
            && chosen.indexes.first().is_none_or(|index| image.index.as_deref() == Some(index))
            && named(&image.tags, &names.tag)
            && named(&image.repo_digests, &names.repo_digest)
            && evidence::has_all(image, signatures)
    }))
}

/// Reports that every layer is present.
pub(crate) fn report_all_present(chosen: &Chosen, hub: &Hub) {
    for layer in &chosen.manifest.layers {
        hub.layer(&layer.digest, LayerState::Present);
    }
}
