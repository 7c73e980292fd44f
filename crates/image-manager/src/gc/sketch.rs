//! From what a pass found to the [`Inventory`] that [`select`](super::select()) takes: which image must stay, how dear it is,
//! and what its removal frees. Decides by pins, rules and uses alone.

use std::collections::BTreeSet;

use cri_api::Image;
use jiff::Timestamp;

use super::collector::{Found, ImageGcManager, State};
use super::detect::{User, handler, name};
use super::plan::Because;
use super::rules::{KeepRule, Says};
use super::select::{Inventory, Item};

/// The owned parts of an [`Inventory`].
pub(super) struct Sketch<'a> {
    inventory: Inventory<'a>,
}

impl<'a> Sketch<'a> {
    pub(super) fn new(manager: &ImageGcManager, state: &'a State, found: &'a Found, failed: &BTreeSet<String>) -> Self {
        let known = found.layers.as_ref();
        // One id is one image, however often it is listed: a removal takes all of it.
        let pinned: BTreeSet<(&str, &str)> =
            found.images.iter().filter(|image| image.pinned).map(|image| (image.id.as_str(), handler(image))).collect();
        let items = found.images.iter().enumerate().map(|(number, image)| {
            let runtime_handler = handler(image);
            let record = state.history.get(&image.id, runtime_handler);
            let layers = known.and_then(|known| known.images.get(&image.id));
            Item {
                id: &image.id,
                runtime_handler,
                first_detected: record.map_or(Timestamp::MAX, |record| state.history.effective(record.first_detected)),
                last_used: record.and_then(|record| record.last_used).map(|used| state.history.effective(used)),
                protected_until: record.and_then(|record| record.protected_until),
                must_stay: manager.must_stay(state, found, number, failed).or_else(|| {
                    pinned.contains(&(image.id.as_str(), runtime_handler)).then_some(Because::PinnedByRuntime)
                }),
                weight: manager.weight(image),
                own_bytes: layers.map_or(image.size, |layers| layers.own_bytes),
                layers: layers.map_or(&[], |layers| layers.layers.as_slice()),
                repository: repository(image),
            }
        });
        let items = items.collect();
        Self { inventory: Inventory { items, layers: known.map_or(&[], |known| known.layers.as_slice()) } }
    }

    pub(super) fn inventory(&self) -> &Inventory<'a> {
        &self.inventory
    }
}

impl ImageGcManager {
    fn must_stay(&self, state: &State, found: &Found, number: usize, failed: &BTreeSet<String>) -> Option<Because> {
        let image = &found.images[number];
        let by = match found.detected.user(number) {
            User::None => None,
            User::Container(container) => found.containers.get(container).map(name),
            User::Sandbox => Some("pod sandboxes".to_owned()),
            User::Volume => Some("an image volume".to_owned()),
            User::Pull => Some("a pull".to_owned()),
        };
        if let Some(by) = by {
            return Some(Because::InUse { by });
        }
        if state.pins.holds(image).is_some() {
            return Some(Because::Pinned);
        }
        let kept = self.options().keep.iter().find(|rule| rule.says == Says::Keep && rule.pattern.matches(image));
        if let Some(rule) = kept {
            return Some(Because::Rule { rule: rule.pattern.to_string() });
        }
        failed.contains(&image.id).then_some(Because::CannotBeRemoved)
    }

    /// How dear an image is by the first rule that weighs it.
    fn weight(&self, image: &Image) -> f64 {
        let weighs = |rule: &KeepRule| match rule.says {
            Says::Weigh(weight) if rule.pattern.matches(image) => Some(weight),
            _ => None,
        };
        self.options().keep.iter().find_map(weighs).unwrap_or(1.0)
    }
}

/// The repository of an image's first name.
fn repository(image: &Image) -> &str {
    let Some(name) = image.repo_tags.first().or(image.repo_digests.first()) else { return "" };
    let name = name.split_once('@').map_or(name.as_str(), |(name, _)| name);
    match name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => name,
    }
}
