//! [`PullIntent`]: a pull that is going on, as a guard. [`PullRecords::intend`](super::PullRecords::intend) makes it.

use std::fmt;
use std::sync::Arc;

use credentials::Candidate;
use cri_api::{BeforeVisible, Error, Kind};
use tokio::sync::OnceCell;

use super::RecordsError;
use super::check::recorded;
use super::inner::Inner;
use super::record::RecordedCredentials;

/// A pull that is under way. Dropped without an outcome before it has [begun](PullIntent::begin) it counts as failed; after
/// that it stays on disk, since the image may be present. The work on drop is done in the background, and
/// [`PullRecords::settle`](super::PullRecords::settle) waits for it.
#[must_use = "dropping it says that there is no pull"]
pub struct PullIntent {
    /// `None`: the outcome was reported.
    inner: Option<Arc<Inner>>,
    image: String,
    /// True if the image may appear.
    begun: bool,
}

impl PullIntent {
    pub(super) fn new(inner: Arc<Inner>, image: String) -> Self {
        Self { inner: Some(inner), image, begun: false }
    }

    /// The image, as it was asked for.
    #[must_use]
    pub fn image(&self) -> &str {
        &self.image
    }

    /// From now on the image may appear.
    pub fn begin(&mut self) {
        self.begun = true;
    }

    /// Returns the step that the runtime has to run before the image may appear. Until then the intent outlives the process,
    /// and afterwards a stop of the machine as well. In this way a pull that changes nothing does not wait for the disk.
    #[must_use]
    pub fn before_visible(&self) -> BeforeVisible {
        let Some(inner) = self.inner.clone() else { return BeforeVisible::default() };
        let (image, settled) = (self.image.clone(), Arc::new(OnceCell::new()));
        BeforeVisible::new(move || {
            let (inner, image, settled) = (Arc::clone(&inner), image.clone(), Arc::clone(&settled));
            async move {
                let settle = async || {
                    let error = match inner.settle_intent(&image).await {
                        Ok(()) => return Ok(()),
                        Err(error) => error,
                    };
                    tracing::error!(%error, image, "a pull intent cannot be made durable");
                    Err(Error::new(Kind::Internal, format!("pull {image}: the intent is not on the disk: {error}")))
                };
                settled.get_or_try_init(settle).await.copied()
            }
        })
    }

    /// Reports that the image is present as `image_ref`, and that the credentials of its pull are not known. Every pod has to
    /// show the registry its own credential before it may use the image, unless an existing record says more. The record is on
    /// disk before the intent is removed. Dropping the future does not stop it.
    ///
    /// # Errors
    /// [`RecordsError`], if the record cannot be written. The intent stays then.
    pub async fn present(mut self, image_ref: &str) -> Result<(), RecordsError> {
        self.end_with(image_ref, None).await
    }

    /// Reports that the outcome cannot be determined: the intent stays on disk, so that the image is taken for a pulled one
    /// as long as nothing better is known. Dropping the future does not stop it.
    pub async fn keep(mut self) {
        let Some(inner) = self.inner.take() else { return };
        let image = std::mem::take(&mut self.image);
        // It can only fail because the process ends, which leaves the intent as well.
        let _closed = Arc::clone(&inner).task(async move { inner.abandon(&image).await }).await;
    }

    /// Reports that the pull succeeded: the image is present as `image_ref`, and was pulled with `used` (`None`: without a
    /// credential). The record is on disk before the intent is removed. Dropping the future does not stop it.
    ///
    /// # Errors
    /// [`RecordsError`], if the record cannot be written. The intent stays then, so that the image is not taken for a
    /// preloaded one, and the next start can make a record of it.
    pub async fn pulled(mut self, image_ref: &str, used: Option<&Candidate>) -> Result<(), RecordsError> {
        self.end_with(image_ref, Some(recorded(used))).await
    }

    async fn end_with(&mut self, image_ref: &str, added: Option<RecordedCredentials>) -> Result<(), RecordsError> {
        let Some(inner) = self.inner.take() else { return Ok(()) };
        let (image, image_ref) = (std::mem::take(&mut self.image), image_ref.to_owned());
        Arc::clone(&inner)
            .task(async move {
                let written = inner.record(&image, &image_ref, added).await;
                match &written {
                    Ok(()) => inner.finish(&image).await,
                    Err(error) => {
                        tracing::error!(%error, image, image_ref, "a pulled image could not be recorded");
                        inner.abandon(&image).await;
                    }
                }
                written
            })
            .await?
    }

    /// Reports that the pull failed. Dropping the future does not stop it.
    pub async fn failed(mut self) {
        let Some(inner) = self.inner.take() else { return };
        let image = std::mem::take(&mut self.image);
        // It can only fail because the process ends; the intent is found at the next start then.
        let _closed = Arc::clone(&inner).task(async move { inner.finish(&image).await }).await;
    }
}

impl Drop for PullIntent {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            let image = std::mem::take(&mut self.image);
            let begun = self.begun;
            Arc::clone(&inner).background(async move {
                if begun { inner.abandon(&image).await } else { inner.finish(&image).await }
            });
        }
    }
}

impl fmt::Debug for PullIntent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PullIntent").field("image", &self.image).finish_non_exhaustive()
    }
}
