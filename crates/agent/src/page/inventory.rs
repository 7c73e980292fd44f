//! [`Inventory`]: the disk, the images, and the candidates of the next collection, as they were at one time. Computing it takes longer
//! than the rest of the page, so that readers share one as long as it is fresh. Decides nothing about images. Kept by
//! [`super::report::Reporter`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cri_api::engine::{ImageLayers, ImageUsage};
use image_manager::gc::PlannedImage;
use jiff::Timestamp;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::sharing::{self, Sharing};
use crate::api::gc::{CollectRequest, DiskUsage};
use crate::collection::{Collection, CollectionError, Collects as _};

/// Minimum time for which an inventory is fresh.
const FRESH: Duration = Duration::from_secs(2);
/// Number of images whose download size is read for one inventory: the sizes of many images are read for several ones.
const READ: usize = 200;
/// Factor of the time that an inventory took, for which it is fresh: readers cost at most a twentieth of a processor.
const SHARE: u32 = 20;

/// The disk and the images at one time.
#[derive(Clone, Debug, Default)]
pub(super) struct Inventory {
    /// The image file system, where it can be measured.
    pub(super) disk: Option<DiskUsage>,
    /// Percent in use at which a collection starts, and at which it ends.
    pub(super) thresholds: (i32, i32),
    /// The images that are removed next.
    pub(super) removals: Removals,
    pub(super) images: Vec<ImageRow>,
    /// The layers that images share; `None` where a runtime does not list them.
    pub(super) sharing: Option<Sharing>,
    /// Reasons for missing parts.
    pub(super) problems: Vec<String>,
}

/// The images that a collection would remove, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Removals {
    /// True if a round would remove them now; otherwise they are removed once disk usage exceeds a threshold.
    pub(super) now: bool,
    pub(super) images: Vec<PlannedImage>,
    /// Bytes that a round frees.
    pub(super) frees_bytes: u64,
}

/// An image with what is known about it.
#[derive(Clone, Debug, Default)]
pub(super) struct ImageRow {
    /// Names, uses, and why it stays. The decision is empty if none could be made.
    pub(super) image: PlannedImage,
    /// Bytes that it has alone, and shares.
    pub(super) usage: Option<ImageUsage>,
    /// Compressed bytes that a pull of the image fetches.
    pub(super) download_bytes: Option<u64>,
    pub(super) pinned: bool,
}

impl ImageRow {
    /// Returns the bytes that the image takes on disk, those that other images use as well included.
    pub(super) fn disk_bytes(&self) -> u64 {
        self.usage.map_or(self.image.size_bytes, |usage| usage.unique_bytes.saturating_add(usage.shared_bytes))
    }
}

/// The last inventory, for all readers.
#[derive(Default)]
pub(super) struct InventoryCache {
    /// Guards the last one: held while the next one is made, so that it is made once.
    last: Mutex<Last>,
}

/// The last inventory, and what the next one uses again.
#[derive(Default)]
struct Last {
    /// The inventory, the number of pulls that had ended, and until when it is fresh.
    inventory: Option<(Arc<Inventory>, u64, Instant)>,
    /// Download sizes by image ID, which never change.
    downloads: HashMap<String, Option<u64>>,
}

impl InventoryCache {
    /// Returns an inventory that is fresh, and was made after `pulls` pulls had ended.
    pub(super) async fn get(&self, collection: &Collection, pulls: u64) -> Arc<Inventory> {
        let mut last = self.last.lock().await;
        if let Some((inventory, after, fresh_until)) = &last.inventory
            && *after == pulls
            && Instant::now() < *fresh_until
        {
            return Arc::clone(inventory);
        }
        let begun = Instant::now();
        let mut inventory = Inventory::take(collection).await;
        last.add_downloads(&mut inventory.images, collection).await;
        let inventory = Arc::new(inventory);
        let fresh = FRESH.max(begun.elapsed().saturating_mul(SHARE));
        last.inventory = Some((Arc::clone(&inventory), pulls, Instant::now() + fresh));
        inventory
    }
}

impl Last {
    /// Sets the download sizes of images, and reads those of new ones. Sizes of images that are absent are dropped.
    async fn add_downloads(&mut self, images: &mut [ImageRow], collection: &Collection) {
        let mut known = std::mem::take(&mut self.downloads);
        let mut read = 0;
        for row in images {
            let id = row.image.id.as_str();
            let bytes = match known.remove(id) {
                Some(bytes) => bytes,
                None if read < READ => {
                    read += 1;
                    collection.download_bytes(id).await
                }
                None => continue,
            };
            self.downloads.insert(id.to_owned(), bytes);
            row.download_bytes = bytes;
        }
    }
}

impl Inventory {
    async fn take(collection: &Collection) -> Self {
        let thresholds = collection.thresholds();
        let mut problems = Vec::new();
        let mut note = |error: CollectionError| {
            let line = cri_api::Error::from_source(error.kind(), &error).message().to_owned();
            if !problems.contains(&line) {
                problems.push(line);
            }
        };
        let layers = collection.layers().await.unwrap_or_else(|error| {
            note(error);
            None
        });
        let listed = collection.list().await.unwrap_or_else(|error| {
            note(error);
            Vec::new()
        });
        let disk = collection.disk().await;
        let (planned, removals) = match plans(collection, disk.as_ref(), thresholds).await {
            Ok(plans) => plans,
            Err(error) => {
                note(error);
                (Vec::new(), Removals::default())
            }
        };
        let images = rows(planned, &listed, layers.as_ref());
        let sharing = layers.as_ref().map(Sharing::of);
        Self { disk, thresholds, removals, images, sharing, problems }
    }
}

/// Returns a round's decision about each image, and the images to remove next: in this round, or in the one that starts at the threshold.
async fn plans(
    collection: &Collection,
    disk: Option<&DiskUsage>,
    (high, low): (i32, i32),
) -> Result<(Vec<PlannedImage>, Removals), CollectionError> {
    let round = collection.plan(&CollectRequest::default()).await?;
    let next = |images: &[PlannedImage]| images.iter().filter(|image| image.is_removed()).cloned().collect::<Vec<_>>();
    let now = next(&round.images);
    if !now.is_empty() {
        let removals = Removals { now: true, images: now, frees_bytes: round.frees_bytes };
        return Ok((round.images, removals));
    }
    let Some(disk) = disk.filter(|_| high < 100) else { return Ok((round.images, Removals::default())) };
    let share = u64::try_from(high.saturating_sub(low)).unwrap_or_default();
    let wanted = disk.capacity_bytes / 100 * share;
    let until_free = Some(disk.available_bytes.saturating_add(wanted));
    let forecast = collection.plan(&CollectRequest { until_free, ..CollectRequest::default() }).await?;
    let removals = Removals { now: false, images: next(&forecast.images), frees_bytes: forecast.frees_bytes };
    Ok((round.images, removals))
}

/// Returns the images of a plan, or those of the service if there is no plan.
fn rows(planned: Vec<PlannedImage>, listed: &[cri_api::Image], layers: Option<&ImageLayers>) -> Vec<ImageRow> {
    let usage = layers.map(sharing::usage).unwrap_or_default();
    let planned = if planned.is_empty() { listed.iter().map(unplanned).collect() } else { planned };
    let pinned: std::collections::HashSet<&str> =
        listed.iter().filter(|image| image.pinned).map(|image| image.id.as_str()).collect();
    let row = |image: PlannedImage| {
        let (usage, pinned) = (usage.get(image.id.as_str()).copied(), pinned.contains(image.id.as_str()));
        ImageRow { image, usage, download_bytes: None, pinned }
    };
    planned.into_iter().map(row).collect()
}

fn unplanned(image: &cri_api::Image) -> PlannedImage {
    let first_detected = image.pulled_at.and_then(|time| Timestamp::from_nanosecond(i128::from(time)).ok());
    PlannedImage {
        id: image.id.clone(),
        names: image.repo_tags.iter().chain(&image.repo_digests).cloned().collect(),
        size_bytes: image.size,
        first_detected,
        ..PlannedImage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_shown_without_a_plan_as_well() {
        let image = cri_api::Image {
            id: "sha256:aa".to_owned(),
            repo_tags: vec!["r.example/a:1".to_owned()],
            size: 7,
            pinned: true,
            pulled_at: Some(1_000_000_000),
            ..cri_api::Image::default()
        };
        let rows = rows(Vec::new(), std::slice::from_ref(&image), None);
        let row = &rows[0];
        assert_eq!((row.image.title(), row.image.size_bytes, row.pinned), ("r.example/a:1", 7, true));
        assert_eq!((row.image.decision.as_str(), row.usage), ("", None));
        assert_eq!(row.image.first_detected.map(Timestamp::as_second), Some(1));
        let planned = PlannedImage { id: image.id.clone(), decision: "in-use".to_owned(), ..PlannedImage::default() };
        let mut layers = ImageLayers { layers: vec![5], ..ImageLayers::default() };
        layers.images.insert(image.id.clone(), cri_api::engine::LayersOf { layers: vec![0], ..Default::default() });
        let rows = super::rows(vec![planned], &[image], Some(&layers));
        assert_eq!((rows.len(), rows[0].pinned, rows[0].usage.map(|u| u.unique_bytes)), (1, true, Some(5)));
    }
}
