//! [`inventory`]: turns a [`Survey`] into the [`Inventory`] that [`select`](super::select()) takes: which image must stay,
//! its weight, and the bytes that its removal frees. Decides by pins, rules and uses alone.

use std::collections::BTreeSet;

use cri_api::Image;
use jiff::Timestamp;

use super::detect::{User, handler, name};
use super::keep_rules::{KeepRule, RuleEffect};
use super::plan::Because;
use super::select::{Inventory, Item};
use super::state_store::GcState;
use super::survey::Survey;

/// The inventory of a survey. Images in `failed` could not be removed in this round: they stay.
pub(super) fn inventory<'a>(
    keep: &[KeepRule],
    state: &GcState,
    survey: &'a Survey,
    failed: &BTreeSet<String>,
) -> Inventory<'a> {
    let layers_known = survey.layers.as_ref();
    // One id is one image, even if it is listed more than once: a removal removes all of it.
    let pinned: BTreeSet<(&str, &str)> =
        survey.images.iter().filter(|image| image.pinned).map(|image| (image.id.as_str(), handler(image))).collect();
    let items = survey.images.iter().enumerate().map(|(number, image)| {
        let runtime_handler = handler(image);
        let record = state.history.get(&image.id, runtime_handler);
        let effective = |time: Timestamp| state.history.effective(time);
        let layers = layers_known.and_then(|known| known.images.get(&image.id));
        Item {
            id: &image.id,
            runtime_handler,
            first_detected: record.map_or(Timestamp::MAX, |record| effective(record.first_detected)),
            last_used: record.and_then(|record| record.last_used).map(effective),
            protected_until: record.and_then(|record| record.protected_until),
            must_stay: must_stay(keep, state, survey, number, failed)
                .or_else(|| pinned.contains(&(image.id.as_str(), runtime_handler)).then_some(Because::PinnedByRuntime)),
            weight: weight(keep, image, state.last_user(image)),
            own_bytes: layers.map_or(image.size, |layers| layers.own_bytes),
            layers: layers.map_or(&[], |layers| layers.layers.as_slice()),
        }
    });
    Inventory { items: items.collect(), layers: layers_known.map_or(&[], |known| known.layers.as_slice()) }
}

/// Why an image must stay whatever the goal is.
fn must_stay(
    keep: &[KeepRule],
    state: &GcState,
    survey: &Survey,
    number: usize,
    failed: &BTreeSet<String>,
) -> Option<Because> {
    let image = &survey.images[number];
    if image.id.is_empty() {
        // Nothing can be removed that has no name.
        return Some(Because::CannotBeRemoved);
    }
    let by = match survey.detected.user(number) {
        User::None => None,
        User::Container(container) => survey.containers.get(container).map(name),
        User::Sandbox => Some("pod sandboxes".to_owned()),
        User::Volume => Some("a pod of this node".to_owned()),
        User::Pull => Some("a pull".to_owned()),
    };
    let by_layers = || survey.layers.as_ref()?.images.get(&image.id)?.used_by.clone();
    if let Some(by) = by.or_else(by_layers) {
        return Some(Because::InUse { by });
    }
    let last_user = state.last_user(image);
    if state.pins.hold(image, last_user).is_some() {
        return Some(Because::Pinned);
    }
    if state.set_pins.hold(image, last_user).is_some() {
        return Some(Because::PinnedByImageSet);
    }
    let kept = keep.iter().find(|rule| rule.effect == RuleEffect::Keep && rule.pattern.fits(image, last_user));
    if let Some(rule) = kept {
        return Some(Because::Rule { rule: rule.pattern.to_string() });
    }
    failed.contains(&image.id).then_some(Because::CannotBeRemoved)
}

/// The weight of an image by the first rule that fits it; 1 without one.
fn weight(keep: &[KeepRule], image: &Image, last_user: &str) -> f64 {
    let weighs = |rule: &KeepRule| match rule.effect {
        RuleEffect::Weigh(weight) if rule.pattern.fits(image, last_user) => Some(weight),
        _ => None,
    };
    keep.iter().find_map(weighs).unwrap_or(1.0)
}
