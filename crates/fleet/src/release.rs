//! The release of nodes in a rollout. Each node has a rank by hash; the controller moves one threshold, and a node starts when its
//! rank is not above it. The threshold is for the nodes up to a cursor in the order of their creation, so that nodes that join
//! start only when the controller has counted them. Both only grow during a rollout. Pure.

use sha2::{Digest as _, Sha256};

use crate::api::{ImageSetStatus, NodeCursor};

/// Place of a node in a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(u64);

impl Rank {
    /// Computes the rank of a node: the first 64 bits of SHA-256 of the set's UID, the generation and the node's name. With 32
    /// bits, two nodes of a large cluster would share a rank too often, and a threshold cannot separate them.
    #[must_use]
    pub fn of(set_uid: &str, generation: i64, node: &str) -> Self {
        let mut hash = Sha256::new();
        for part in [set_uid, &generation.to_string(), node] {
            hash.update(part);
            hash.update([0]);
        }
        let digest = hash.finalize();
        Self(digest.iter().take(8).fold(0, |rank, byte| rank << 8 | u64::from(*byte)))
    }

    /// Reads a threshold of a status.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok().map(Self)).flatten()
    }
}

impl std::fmt::Display for Rank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The nodes that may start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Release {
    /// Threshold; `None` before the first node was released.
    pub threshold: Option<Rank>,
    /// Newest node that the threshold is for.
    pub newest: Option<NodeCursor>,
}

impl Release {
    /// Reads the release of a status.
    #[must_use]
    pub fn of(status: &ImageSetStatus) -> Self {
        Self { threshold: status.released.as_deref().and_then(Rank::parse), newest: status.newest_node.clone() }
    }

    /// Returns true if a node of this rank and creation may start.
    #[must_use]
    pub fn covers(&self, rank: Rank, created: &NodeCursor) -> bool {
        self.threshold.is_some_and(|threshold| rank <= threshold)
            && self.newest.as_ref().is_some_and(|newest| created <= newest)
    }

    /// Moves cursor and threshold as far as `limit` nodes in progress allow. Nodes that ended need no place. Neither of both
    /// ever moves back.
    #[must_use]
    pub fn advance(&self, nodes: &[RolloutNode], limit: usize) -> Self {
        let in_progress = nodes.iter().filter(|node| node.holds_a_place(self)).count();
        let mut free = limit.saturating_sub(in_progress);
        let mut next = self.clone();
        next.count_joined(nodes, &mut free);
        next.raise(nodes, free);
        next
    }

    /// Moves the cursor over nodes that joined, in the order of their creation, until one of them has no place.
    fn count_joined(&mut self, nodes: &[RolloutNode], free: &mut usize) {
        let is_new = |node: &&RolloutNode| self.newest.as_ref().is_none_or(|newest| node.created > *newest);
        let mut joined: Vec<&RolloutNode> = nodes.iter().filter(is_new).collect();
        joined.sort_by(|one, other| one.created.cmp(&other.created));
        for node in joined {
            let starts = self.threshold.is_some_and(|threshold| node.rank <= threshold);
            if starts && node.state == NodeState::Waiting {
                let Some(left) = free.checked_sub(1) else { return };
                *free = left;
            }
            self.newest = Some(node.created.clone());
        }
    }

    /// Raises the threshold over counted nodes, in the order of their ranks. Nodes of equal rank start together or not at all.
    fn raise(&mut self, nodes: &[RolloutNode], mut free: usize) {
        let is_counted = |node: &&RolloutNode| self.newest.as_ref().is_some_and(|newest| node.created <= *newest);
        let is_above = |node: &&RolloutNode| self.threshold.is_none_or(|threshold| node.rank > threshold);
        let mut above: Vec<&RolloutNode> = nodes.iter().filter(is_counted).filter(is_above).collect();
        above.sort_by_key(|node| node.rank);
        for group in above.chunk_by(|one, other| one.rank == other.rank) {
            let starting = group.iter().filter(|node| node.state == NodeState::Waiting).count();
            let Some(left) = free.checked_sub(starting) else { return };
            free = left;
            self.threshold = group.first().map(|node| node.rank);
        }
    }
}

/// A selected node in a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutNode {
    /// Name and creation.
    pub created: NodeCursor,
    /// Rank in this rollout.
    pub rank: Rank,
    /// State of the node.
    pub state: NodeState,
}

impl RolloutNode {
    /// Returns true if the node counts against the limit: it pulls, or may have started without having reported it.
    #[must_use]
    pub fn holds_a_place(&self, release: &Release) -> bool {
        match self.state {
            NodeState::Pulling => true,
            NodeState::Waiting => release.covers(self.rank, &self.created),
            NodeState::Ready | NodeState::Failed | NodeState::Lost => false,
        }
    }
}

/// State of a node in a rollout, as far as the controller knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// No start was reported.
    Waiting,
    /// Images are being fetched.
    Pulling,
    /// Every image is present.
    Ready,
    /// The last attempt failed.
    Failed,
    /// May start or has started, and does not report.
    Lost,
}

/// Returns true if a node may start to pull for the set. Called by the daemon of the node.
#[must_use]
pub fn may_start(status: &ImageSetStatus, set_uid: &str, created: &NodeCursor) -> bool {
    let Some(generation) = status.rollout_generation else { return false };
    Release::of(status).covers(Rank::of(set_uid, generation, &created.name), created)
}

#[cfg(test)]
#[path = "release_tests.rs"]
mod tests;
