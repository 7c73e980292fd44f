//! The end of a pull into a runtime's store: waits until the runtime, which learns of new records by events, shows the image.

use std::time::Duration;

use cri_api::{Error, Image, ImageSpec, Kind, Result};
use tokio::time::{Instant, sleep};

use super::RuntimeStoreWriter;

/// Longest time in which the runtime shows an image after its records were written.
const VISIBLE_WITHIN: Duration = Duration::from_secs(5);

/// Longest time in which the runtime shows the names of an image that it shows already.
const NAMES_WITHIN: Duration = Duration::from_millis(500);

impl RuntimeStoreWriter {
    /// Waits until the runtime shows the image.
    pub(super) async fn wait_until_visible(&self) -> Result<()> {
        if self.is_shown_within(VISIBLE_WITHIN, |_| true).await? {
            return Ok(());
        }
        // The runtime does not pull it instead: the content of an image does not select an engine.
        let seconds = VISIBLE_WITHIN.as_secs();
        let message = format!("the runtime does not show the image {seconds} s after its record was written");
        Err(Error::new(Kind::FailedPrecondition, message))
    }

    /// Waits for a moment until the runtime shows the names of the image. Some it never shows, such as those with IPv6 addresses.
    pub(super) async fn wait_for_names(&self, names: &[String]) -> Result<()> {
        let has_names = |image: &Image| {
            let is_shown = |name: &String| image.repo_tags.contains(name) || image.repo_digests.contains(name);
            names.iter().all(is_shown)
        };
        self.is_shown_within(NAMES_WITHIN, has_names).await.map(drop)
    }

    async fn is_shown_within(&self, limit: Duration, is_shown: impl Fn(&Image) -> bool + Send) -> Result<bool> {
        let spec = ImageSpec::new(self.image.id().to_string());
        let (deadline, mut pause) = (Instant::now() + limit, Duration::from_millis(1));
        loop {
            let found = self.destination.target.images.image_status(&spec, false).await?.image;
            if found.is_some_and(|image| is_shown(&image)) {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }
}
