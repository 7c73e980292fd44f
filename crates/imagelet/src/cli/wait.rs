//! `imagelet ensure --wait`: requests every image again and again, as a kubelet's pod worker does, until it is present. The image manager
//! decides when a pull may be tried; this module only decides when to request it. Meanwhile, the admin endpoint is served. Called by
//! `ensure`.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use agent::admin::Admin;
use agent::ensure::ImageNeed;
use image_manager::{EnsureImageError, EnsureImageRequest, EnsuredImage, ImageManager};
use prometheus_client::registry::Registry;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::endpoint::admin_address;
use crate::exit::Outcome;
use crate::manager::Managed;

/// Interval of a pod's syncs: the kubelet's back-off period, and up to half of it more.
const PERIOD: Duration = Duration::from_secs(10);

/// The result of a need; `None` if the command ended before it had one.
pub(super) type End = Option<Result<EnsuredImage, EnsureImageError>>;

/// Requests all images until each is present, it cannot become present, the time is over, or the process is asked to end.
pub(super) async fn all(
    app: &App,
    managed: &Managed,
    needs: &[ImageNeed],
    requests: &[EnsureImageRequest],
    timeout: Option<Duration>,
) -> Outcome<Vec<End>> {
    let collection = app.own_collection().await;
    let register = |registry: &mut Registry| {
        managed.register(registry);
        collection.iter().for_each(|collection| collection.register(registry));
        app.network.register(registry);
        app.traces.iter().for_each(|traces| traces.register(registry));
    };
    let mut admin = Admin::new(register, app.service().await?);
    app.open_to_requests(&mut admin).await?;
    admin.manager = Some(Arc::clone(&managed.manager));
    admin.collection.clone_from(&collection);
    let admin = admin.start(&admin_address(&app.config), &app.stop).await?;
    let ended = app.stop.child_token();
    let waits = needs
        .iter()
        .zip(requests)
        .map(|(need, request)| one(&managed.manager, (&need.pod, need.image.title()), request, &ended));
    let all = futures::future::join_all(waits);
    tokio::pin!(all);
    let time = async {
        match timeout {
            Some(time) => tokio::time::sleep(time).await,
            None => std::future::pending().await,
        }
    };
    let ends = tokio::select! {
        ends = &mut all => ends,
        () = time => {
            tracing::warn!("the time is over");
            ended.cancel();
            all.await
        }
    };
    admin.stop().await;
    Ok(ends)
}

/// Requests one image until it is present. Returns the last result, if there was any.
async fn one(
    manager: &Arc<ImageManager>,
    (pod, container): (&str, String),
    request: &EnsureImageRequest,
    ended: &CancellationToken,
) -> End {
    let mut state = "";
    let mut last = None;
    for round in 0_u64.. {
        // Subscribe before the request, so that no reset is missed.
        let reset = manager.backoff_was_reset();
        let result = tokio::select! {
            biased;
            result = manager.ensure_image_exists(request) => result,
            () = ended.cancelled() => return last,
        };
        let now = match &result {
            Ok(ensured) if ensured.pulled => "pulled",
            Ok(_) => "present",
            Err(error) => error.reason(),
        };
        if now != std::mem::replace(&mut state, now) {
            let image = &request.image;
            match &result {
                Ok(_) => tracing::info!(%pod, %container, %image, result = %now, "image is there"),
                Err(error) => {
                    let error = error.message();
                    tracing::warn!(%pod, %container, %image, reason = %now, error, "image is not there yet");
                }
            }
        }
        let hopeless = matches!(result, Err(EnsureImageError::InvalidImageName { .. }));
        if result.is_ok() || hopeless {
            return Some(result);
        }
        last = Some(result);
        let next = next_request(manager, request, round);
        tokio::select! {
            () = ended.cancelled() => return last,
            () = reset => {}
            () = tokio::time::sleep_until(next) => {}
        }
    }
    last
}

/// Returns the time of the next request: after the period, or when the back-off ends before that.
fn next_request(manager: &ImageManager, request: &EnsureImageRequest, round: u64) -> Instant {
    let regular = Instant::now() + PERIOD + spread(request, round);
    let held = manager.backoff().into_iter().find(|e| e.uid == request.pod.uid && e.image == request.image);
    held.map(|entry| entry.until).filter(|until| *until > Instant::now()).map_or(regular, |until| until.min(regular))
}

/// Returns up to half a period, so that many pods do not request images at the same moment. It depends only on pod, image and round.
fn spread(request: &EnsureImageRequest, round: u64) -> Duration {
    let mut hasher = DefaultHasher::new();
    (&request.pod.uid, &request.image, round).hash(&mut hasher);
    PERIOD.mul_f64(0.5 * f64::from(u16::try_from(hasher.finish() & 0xffff).unwrap_or(0)) / 65536.0)
}

#[cfg(test)]
#[path = "wait_tests.rs"]
mod tests;
