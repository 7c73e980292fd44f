//! The present image that a reference with a digest names, for engines that trust it without a request.

use cri_api::Result;
use oci::{Digest, ImageConfig, Reference};
use store::ImageRecord;

use super::choose::runs_on;
use crate::parts::EngineParts;

/// Returns the ID of the image that a reference with a digest names, if it is present, whole, accepted by the signature policy,
/// and runs on the engine's platform.
pub(super) async fn by_digest(parts: &EngineParts, reference: &Reference) -> Result<Option<Digest>> {
    if reference.digest().is_none() {
        return Ok(None);
    }
    let runs = |image: &ImageRecord| {
        ImageConfig::parse(&image.config).is_ok_and(|config| runs_on(&config, &parts.options.platform))
    };
    Ok(parts.policy.find_usable(reference.clone().into()).await?.filter(runs).map(|image| image.id))
}
