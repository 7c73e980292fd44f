//! [`Survey`]: the images, containers and layers of the node as one pass listed them, with the user of each image. Making
//! one updates the [usage history](super::history::UsageHistory).

use std::time::Duration;

use cri_api::engine::ImageLayers;
use cri_api::{Container, Image};
use jiff::Timestamp;
use tokio::time::Instant;

use super::context::GcContext;
use super::detect::{AlwaysUsed, Detected, detect_at};
use super::report::GcError;
use super::select::Rules;
use super::state_store::GcState;
use crate::EventType;
use crate::reclaim_space::ImageHolds;

/// The lists of one pass.
pub(super) struct Survey {
    pub(super) images: Vec<Image>,
    pub(super) containers: Vec<Container>,
    pub(super) detected: Detected,
    pub(super) layers: Option<ImageLayers>,
    /// Rules of the round.
    pub(super) rules: Rules,
    /// Time of the pass by the wall clock, to which the history was advanced, and by the monotonic clock.
    at: (Timestamp, Instant),
}

impl Survey {
    /// Lists images and containers, and records in the history of `state` which images are in use. `min_age` replaces the minimum
    /// age of the policy.
    pub(super) async fn take(
        context: &GcContext,
        holds: &ImageHolds,
        state: &mut GcState,
        min_age: Option<Duration>,
    ) -> Result<Self, GcError> {
        // Images first: what a container begins to use in between is then seen as used.
        let mut images = context.list_images_with_times().await?;
        context.clear_own_pins(&mut images).await;
        if images.iter().any(|image| image.id.is_empty()) {
            context.record_event(EventType::Warning, "InvalidImageID", "ImageID is not valid, skipping, ImageID: ");
        }
        let containers = context.list_containers().await?;
        let layers = context.image_layers().await?;
        let sandbox_image = context.sandbox_image().await;
        let options = context.options();
        let (moment, clock) = (context.moment(), (options.clock)());
        let at = (moment.wall, clock);
        let volumes = options.volumes.as_ref().map(|volumes| volumes()).unwrap_or_default();
        // A pull that ended a moment ago is that of a container which is about to begin.
        let mut rules = context.rules();
        rules.min_age = min_age.unwrap_or(rules.min_age);
        let pulls = holds.images(rules.min_age);
        let always = AlwaysUsed { sandbox_image: sandbox_image.as_ref(), volumes: &volumes, pulls: &pulls };
        let detected = detect_at(&mut state.history, &images, &containers, always, moment);
        Ok(Self { images, containers, detected, layers, rules, at })
    }

    /// The time by which ages count: that of the pass, and the time that has passed since by the monotonic clock. A wall
    /// clock that is set in the middle of a round, as on a node that has just reached a time server, makes no image old
    /// enough to go.
    pub(super) fn now(&self, context: &GcContext) -> Timestamp {
        let (wall, clock) = self.at;
        let passed = (context.options().clock)().saturating_duration_since(clock);
        wall.checked_add(passed).unwrap_or(Timestamp::MAX)
    }

    /// Forgets images that were removed, so that the next plan is about the rest.
    pub(super) fn forget(&mut self, removed: &[usize]) {
        if removed.is_empty() {
            return;
        }
        let mut stays = vec![true; self.images.len()];
        for &number in removed {
            stays[number] = false;
        }
        self.detected.retain(&stays);
        let mut number = 0;
        self.images.retain(|_: &Image| {
            number += 1;
            stays[number - 1]
        });
    }
}
