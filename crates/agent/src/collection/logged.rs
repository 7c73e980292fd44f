//! [`Logged`]: an image service whose pulls, failures and removals are written to the log, one line each with the fields `image`,
//! `size`, `duration` and `reason` (as in the metrics): they are all that an operator sees of a server. Changes no call and no answer. Called by `serve`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cri_api::{FsInfo, Image, ImageFilter, ImageService, ImageSpec, ImageStatus, PullImageRequest, Result};
use image_manager::{Cause, Clock};
use tokio::time::Instant;

/// An image service with a log.
pub struct Logged {
    service: Arc<dyn ImageService>,
    clock: Clock,
}

impl Logged {
    /// Logs what is done through it with `service`.
    pub fn new(service: Arc<dyn ImageService>, clock: Clock) -> Self {
        Self { service, clock }
    }

    /// Returns the size of an image, if it is present.
    async fn size(&self, image: &ImageSpec) -> Option<u64> {
        let status = self.service.image_status(image, false).await.ok()?;
        status.image.map(|image| image.size)
    }

    fn begin(&self, image: &ImageSpec) -> CallTime<'_> {
        CallTime { image: image.image.clone(), begin: (self.clock)(), clock: &self.clock, is_pull: false }
    }
}

/// The time that a call takes. A pull that is dropped was given up: by its client, or with the process.
struct CallTime<'a> {
    image: String,
    begin: Instant,
    clock: &'a Clock,
    /// The call is a pull that has no answer yet.
    is_pull: bool,
}

impl CallTime<'_> {
    /// Returns the time so far, to the millisecond.
    fn duration(&self) -> Duration {
        let passed = (self.clock)().saturating_duration_since(self.begin);
        passed - Duration::from_nanos(u64::from(passed.subsec_nanos() % 1_000_000))
    }
}

impl Drop for CallTime<'_> {
    fn drop(&mut self) {
        if self.is_pull {
            let (image, duration) = (&*self.image, self.duration());
            tracing::info!(image, ?duration, reason = Cause::Cancelled.as_str(), "pull given up");
        }
    }
}

#[async_trait]
impl ImageService for Logged {
    async fn list_images(&self, filter: Option<&ImageFilter>) -> Result<Vec<Image>> {
        self.service.list_images(filter).await
    }

    async fn image_status(&self, image: &ImageSpec, verbose: bool) -> Result<ImageStatus> {
        self.service.image_status(image, verbose).await
    }

    async fn pull_image(&self, request: PullImageRequest) -> Result<String> {
        let mut call = self.begin(&request.image);
        call.is_pull = true;
        let outcome = self.service.pull_image(request).await;
        call.is_pull = false;
        let (image, duration) = (call.image.as_str(), call.duration());
        match &outcome {
            Ok(image_ref) => match self.size(&ImageSpec::new(image_ref)).await {
                Some(size) => tracing::info!(image, size, ?duration, "image pulled"),
                None => tracing::info!(image, ?duration, "image pulled"),
            },
            Err(error) => tracing::info!(image, ?duration, reason = Cause::of(error).as_str(), %error, "pull failed"),
        }
        outcome
    }

    async fn remove_image(&self, image: &ImageSpec) -> Result<()> {
        let size = self.size(image).await;
        let call = self.begin(image);
        let outcome = self.service.remove_image(image).await;
        let (image, duration) = (call.image.as_str(), call.duration());
        match (&outcome, size) {
            (Ok(()), Some(size)) => tracing::info!(image, size, ?duration, reason = "requested", "image removed"),
            (Ok(()), None) => tracing::debug!(image, "no image to remove"),
            (Err(error), _) => {
                tracing::info!(image, ?duration, reason = Cause::of(error).as_str(), %error, "removal failed")
            }
        }
        outcome
    }

    async fn image_fs_info(&self) -> Result<FsInfo> {
        self.service.image_fs_info().await
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};

    use base::lock::Mutex;
    use cri_api::testing::{CallKind, FakeImage, FakeImageService};
    use cri_api::{Kind, Reason};
    use tracing::instrument::WithSubscriber as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn one_line_for_each_pull_failure_and_removal() {
        let fake = FakeImageService::new();
        let name = "registry.test/app:1";
        fake.publish(name, &FakeImage::new("app"));
        let begin = Instant::now();
        let times = Mutex::new(0);
        // The clock advances by 1.5 seconds at each reading.
        let clock: Clock = Arc::new(move || {
            let mut times = times.lock();
            *times += 1;
            begin + Duration::from_millis(1500) * *times
        });
        let logged = Logged::new(Arc::new(fake.clone()), clock);
        let kept = Kept::default();
        let writer = kept.clone();
        let log = tracing_subscriber::fmt().with_writer(move || writer.clone()).without_time().with_ansi(false);
        let subscriber = log.with_target(false).finish();
        let calls = async {
            let id = logged.pull_image(PullImageRequest::new(name)).await.unwrap();
            let size = fake.image_status(&ImageSpec::new(&id), false).await.unwrap().image.unwrap().size;
            logged.remove_image(&ImageSpec::new(&id)).await.unwrap();
            logged.remove_image(&ImageSpec::new(&id)).await.unwrap();
            let limited = cri_api::Error::new(Kind::ResourceExhausted, "429").with_reason(Reason::RateLimited);
            fake.faults().fail(CallKind::PullImage, limited);
            logged.pull_image(PullImageRequest::new(name)).await.unwrap_err();
            fake.faults().clear(CallKind::PullImage);
            let gate = fake.faults().hold(CallKind::PullImage);
            tokio::select! {
                _ = logged.pull_image(PullImageRequest::new(name)) => panic!("the gate is closed"),
                () = gate.until_waiting(1) => {}
            }
            (id, size)
        };
        let (id, size) = calls.with_subscriber(subscriber).await;
        let text = String::from_utf8(kept.0.lock().clone()).unwrap();
        let want = format!(
            " INFO image pulled image=\"{name}\" size={size} duration=1.5s\n \
             INFO image removed image=\"{id}\" size={size} duration=1.5s reason=\"requested\"\n \
             INFO pull failed image=\"{name}\" duration=1.5s reason=\"rate_limited\" error=429\n \
             INFO pull given up image=\"{name}\" duration=1.5s reason=\"cancelled\"\n"
        );
        assert_eq!(text, want);
    }
}
