//! [`Model`]: everything that the daemon of a node knows: the sets that it follows, the images that it must have, their states, and
//! those that it holds. Pure: events go in, decisions are asked for. Called by [`super::daemon`].

use std::collections::BTreeMap;

use cluster::retry::Random;
use image_manager::NamespaceGrants;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use oci::Reference;
use tokio::time::Instant;

use super::desired::{Desired, DesiredImage, ImageKey, desired};
use super::followed::{FollowedSet, NodeFacts, follow};
use super::held::{HeldImages, pinned_names};
use super::presence::Presence;
use super::report::{ReportContext, report};
use super::state_file::SavedState;
use super::states::{ImageStates, Now, PullProblem};
use crate::api::{DiskReport, ImageSet, NodeImagesStatus, TransferredBytes};

/// State of a node's image sets.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    node: Option<NodeFacts>,
    /// Followed sets by name.
    sets: BTreeMap<String, FollowedSet>,
    desired: Desired,
    states: ImageStates,
    held: HeldImages,
    /// Number of nodes of the cluster; 0: unknown.
    nodes: u32,
    condition: Option<Condition>,
}

impl Model {
    /// Returns the model as it was saved.
    pub(super) fn restore(saved: SavedState) -> Self {
        let SavedState { node, sets, held, nodes, condition, .. } = saved;
        let sets = sets.into_iter().map(|set| (set.name.clone(), set)).collect();
        let mut model = Self { node, sets, held, nodes, condition, ..Self::default() };
        model.derive();
        model
    }

    pub(super) fn saved(&self) -> SavedState {
        let sets = self.sets.values().cloned().collect();
        let saved = SavedState::new(self.node.clone(), sets, self.held.clone(), self.nodes);
        SavedState { condition: self.condition.clone(), ..saved }
    }

    /// Takes the own Node. A Node that was deleted counts as it was.
    pub(super) fn see_node(&mut self, facts: Option<NodeFacts>) {
        if let Some(facts) = facts {
            self.node = Some(facts);
        }
    }

    /// Takes the number of nodes of the cluster.
    pub(super) fn see_nodes(&mut self, nodes: u32) {
        self.nodes = nodes;
    }

    /// Takes all sets of the cluster. `unreadable` names sets that cannot be parsed: they count as before. Returns true if the node must
    /// have other images than before.
    pub(super) fn see_sets<'a>(
        &mut self,
        sets: impl IntoIterator<Item = &'a ImageSet>,
        unreadable: impl IntoIterator<Item = &'a str>,
    ) -> bool {
        let Some(node) = &self.node else { return false };
        let followed = sets.into_iter().filter_map(|set| {
            let before = set.metadata.name.as_ref().and_then(|name| self.sets.get(name));
            follow(set, node, before)
        });
        let mut followed: BTreeMap<String, FollowedSet> = followed.map(|set| (set.name.clone(), set)).collect();
        for name in unreadable {
            if let Some(before) = self.sets.get(name) {
                followed.insert(name.to_owned(), before.clone());
            }
        }
        self.sets = followed;
        let before = std::mem::take(&mut self.desired);
        self.derive();
        for (key, image) in &self.desired.images {
            if before.images.get(key).is_some_and(|before| !before.is_pulled_like(image)) {
                self.states.retry_now(key);
            }
        }
        !before.images.keys().eq(self.desired.images.keys())
    }

    fn derive(&mut self) {
        self.desired = desired(self.sets.values());
        self.states.follow(&self.desired);
    }

    /// Takes a list of the present images. Returns the images that disappeared.
    pub(super) fn observe(&mut self, presence: &Presence) -> Vec<ImageKey> {
        let disappeared = self.states.observe(&self.desired, &self.held, presence);
        self.hold_present();
        disappeared
    }

    fn hold_present(&mut self) {
        for key in self.states.present() {
            if let Some(image) = self.desired.images.get(key) {
                self.held.note_present(key, image, false);
            }
        }
    }

    /// Returns the images that are to be removed now, because no set wants them.
    pub(super) fn release(&mut self, now: Timestamp) -> Vec<ImageKey> {
        self.held.update(&self.desired, now)
    }

    /// Returns the names that the image collection of the node must pin.
    pub(super) fn pinned_names(&self) -> Vec<String> {
        pinned_names(&self.desired, &self.held)
    }

    /// Returns the images whose pull may start now, in order.
    pub(super) fn due(&self, now: Instant) -> Vec<ImageKey> {
        self.states.due(&self.desired, &self.held, now)
    }

    pub(super) fn started(&mut self, key: &ImageKey) {
        self.states.started(key);
    }

    pub(super) fn progressed(&mut self, key: &ImageKey, bytes: TransferredBytes) {
        self.states.progressed(key, bytes);
    }

    /// Records the end of a pull.
    pub(super) fn ended(&mut self, key: &ImageKey, result: Result<String, PullProblem>, now: Now, random: &Random) {
        if let (Ok(_), Some(image)) = (&result, self.desired.images.get(key)) {
            self.held.note_present(key, image, true);
        }
        self.states.ended(key, result, now, random);
    }

    /// Returns the wanted image.
    pub(super) fn image(&self, key: &ImageKey) -> Option<&DesiredImage> {
        self.desired.images.get(key)
    }

    /// Returns true if a wanted image has this ID.
    pub(super) fn wants_id(&self, id: &str) -> bool {
        self.states.present().filter_map(|key| self.states.get(key)?.id.as_deref()).any(|present| present == id)
    }

    /// Returns the present images that namespaces may use without a credential.
    pub(super) fn grants(&self) -> NamespaceGrants {
        let mut all = NamespaceGrants::default();
        for key in self.states.present() {
            let (Some(image), Some(state)) = (self.desired.images.get(key), self.states.get(key)) else { continue };
            let repository = Reference::parse(&key.name).ok().map(|reference| reference.repository());
            if let (Some(repository), Some(id), false) = (repository, &state.id, image.namespaces.is_empty()) {
                let namespaces = all.entry((repository, id.clone())).or_default();
                namespaces.extend(image.namespaces.iter().cloned());
            }
        }
        all
    }

    pub(super) fn node(&self) -> Option<&NodeFacts> {
        self.node.as_ref()
    }

    pub(super) fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Returns the time of the next attempt after a failure.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.states.next_retry()
    }

    /// Returns the time at which the next protection ends.
    pub(super) fn next_release(&self) -> Option<Timestamp> {
        self.held.next_release()
    }

    /// Returns the report of this node.
    pub(super) fn report(&mut self, now: Timestamp, version: &str, disk: Option<DiskReport>) -> NodeImagesStatus {
        let context = ReportContext { now, version, disk, before: self.condition.as_ref() };
        let status = report(self.sets.values(), &self.desired, &self.states, &context);
        self.condition = status.conditions.first().cloned();
        status
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
