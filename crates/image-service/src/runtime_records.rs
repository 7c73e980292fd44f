//! [`hidden`]: records in a runtime's store that lead to no image which the runtime shows, as pulls of earlier versions left them for
//! images that the runtime cannot decode. CRI neither lists nor removes them, and they keep layers. Called by checks and collections.

use std::collections::HashSet;

use cri_api::engine::runtime_store::{RuntimeRecord, RuntimeStore};
use cri_api::{Image, ImageService, ImageSpec, Result};
use oci::Digest;

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
    let settled = now / 1_000_000_000 - SETTLED_AFTER;
    let mut hidden = Vec::new();
    for record in candidates(records, &listed, settled) {
        // A list may lack an image that a query by name finds. An error is no answer: the record stays.
        match images.image_status(&ImageSpec::new(record.name.clone()), false).await {
            Ok(status) if status.image.is_none() => {}
            Ok(_) => continue,
            Err(error) => {
                tracing::debug!(record = record.name, %error, "cannot find out whether the runtime shows the image of this record");
                continue;
            }
        }
        if remove {
            store.remove_record(&record).await?;
            tracing::info!(record = record.name, target = %record.target, "removed a record of an image that the runtime does not show");
        }
        hidden.push(record.name);
    }
    Ok(hidden)
}

/// Returns the settled records whose image the runtime does not list by any name. A runtime leaves out single names that it cannot parse,
/// such as those of registries with IPv6 addresses: their images are listed by their IDs, so a shared target keeps them.
fn candidates(records: Vec<RuntimeRecord>, listed: &[Image], settled: i64) -> Vec<RuntimeRecord> {
    let shown: HashSet<&String> = listed
        .iter()
        .flat_map(|image| [&image.id].into_iter().chain(&image.repo_tags).chain(&image.repo_digests))
        .collect();
    let shown_targets: HashSet<Digest> =
        records.iter().filter(|record| shown.contains(&record.name)).map(|record| record.target.clone()).collect();
    let is_candidate = |record: &RuntimeRecord| {
        record.updated_at <= settled && !shown.contains(&record.name) && !shown_targets.contains(&record.target)
    };
    records.into_iter().filter(is_candidate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_listed_images_are_no_candidates() {
        let target = |text: &str| Digest::sha256(text.as_bytes());
        let record = |name: &str, of: &str, updated_at| RuntimeRecord {
            name: name.to_owned(),
            target: target(of),
            created_at: 0,
            updated_at,
        };
        let listed =
            [Image { id: "sha256:app".to_owned(), repo_tags: vec!["r.example/app:1".to_owned()], ..Image::default() }];
        let records = vec![
            record("sha256:app", "app", 1),
            record("r.example/app:1", "app", 1),
            record("[fd00::1]:5000/app:1", "app", 1),
            record("sha256:broken", "broken", 1),
            record("r.example/broken:1", "broken", 1),
            record("r.example/new:1", "new", 3),
        ];
        let names = |settled| -> Vec<String> {
            candidates(records.clone(), &listed, settled).into_iter().map(|record| record.name).collect()
        };
        assert_eq!(names(2), ["sha256:broken", "r.example/broken:1"]);
        assert_eq!(names(3), ["sha256:broken", "r.example/broken:1", "r.example/new:1"]);
    }
}
