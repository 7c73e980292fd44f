//! [`hidden`]: records in a runtime's store that lead to no image which the runtime shows, as pulls of earlier versions left them for
//! images that the runtime cannot decode. CRI neither lists nor removes them, and they keep layers. Called by checks and collections.

use std::collections::HashSet;

use cri_api::{ImageService, ImageSpec, Result};
use engine_api::runtime_store::{RuntimeRecord, RuntimeStore};

/// Age from which a record counts, in seconds: the runtime shows an image some time after its record was written.
const SETTLED_AFTER: i64 = 60;

/// Returns the names of the hidden records as of `now`, in nanoseconds since 1970; `remove`: they are removed.
pub(crate) async fn hidden(
    images: &dyn ImageService,
    store: &dyn RuntimeStore,
    now: i64,
    remove: bool,
) -> Result<Vec<String>> {
    let records = store.records().await?;
    let listed = images.list_images(None).await?;
    let shown: HashSet<&String> = listed
        .iter()
        .flat_map(|image| [&image.id].into_iter().chain(&image.repo_tags).chain(&image.repo_digests))
        .collect();
    let settled = now / 1_000_000_000 - SETTLED_AFTER;
    let is_hidden = |record: &RuntimeRecord| !shown.contains(&record.name) && record.updated_at <= settled;
    let mut hidden = Vec::new();
    for record in records.into_iter().filter(is_hidden) {
        // A list may lack what a single question finds.
        if images.image_status(&ImageSpec::new(record.name.clone()), false).await?.image.is_some() {
            continue;
        }
        if remove {
            store.remove_record(&record).await?;
            tracing::info!(record = record.name, target = %record.target, "removed a record of an image that the runtime does not show");
        }
        hidden.push(record.name);
    }
    Ok(hidden)
}
