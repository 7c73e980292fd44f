//! [`Reporter`]: gathers the page's content as plain data, and keeps the one figure that no other part keeps: the throughput of
//! the last hour. Decides nothing. Called by [`super::routes`] and [`super::live`].

use std::sync::Arc;
use std::time::Duration;

use base::lock::Mutex;
use image_manager::{EndedPull, PullInFlight};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::history::{History, Interval};
use super::inventory::{Inventory, InventoryCache};
use super::parts::PageParts;
use crate::admin::backoff::WaitingImage;
use crate::admin::image_sets::{ImageSetList, ImageSetState};
use crate::node::board::{PodBoard, PodList, RefusedPod};
use crate::node::events::RecordedEvent;
use crate::pods::shape::Pod;

/// Interval at which the bytes of pulls are counted.
const COUNTED: Duration = Duration::from_secs(5);
/// Number of events that are shown.
const EVENTS: usize = 100;

/// Everything that the page shows.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) node_name: String,
    /// Time at which the process started.
    pub(super) started: Timestamp,
    pub(super) now: Timestamp,
    pub(super) inventory: Arc<Inventory>,
    pub(super) pulls: Vec<PullInFlight>,
    /// Pulls that ended, oldest first.
    pub(super) ended: Vec<EndedPull>,
    /// Intervals of the last hour, oldest first.
    pub(super) throughput: Vec<Interval>,
    /// `None` where this process keeps no back-off.
    pub(super) backoff: Option<Vec<WaitingImage>>,
    /// `None` where this process runs no pods.
    pub(super) pods: Option<PodReport>,
    pub(super) image_sets: FollowedSets,
}

/// The image sets of a cluster that this node follows.
#[derive(Clone, Debug, Default)]
pub(super) enum FollowedSets {
    /// This process follows none.
    #[default]
    None,
    /// Which sets select the node is not known yet.
    Unknown,
    /// The sets that select the node.
    Known(ImageSetList),
}

impl FollowedSets {
    /// Returns the sets that select the node, as far as they are known.
    pub(super) fn sets(&self) -> &[ImageSetState] {
        match self {
            Self::None | Self::Unknown => &[],
            Self::Known(list) => &list.sets,
        }
    }
}

/// The pods of the node and their events.
#[derive(Clone, Debug, Default)]
pub(super) struct PodReport {
    pub(super) pods: Vec<Pod>,
    /// Manifests that were refused.
    pub(super) refused: Vec<RefusedPod>,
    /// The last events, newest first.
    pub(super) events: Vec<RecordedEvent>,
}

/// Gathers reports.
pub(super) struct Reporter {
    parts: PageParts,
    started: Timestamp,
    inventory: InventoryCache,
    /// Guards the throughput of the last hour.
    history: Mutex<History>,
}

impl Reporter {
    pub(super) fn new(parts: PageParts) -> Self {
        let started = Timestamp::now();
        let history = Mutex::new(History::new(started.as_second()));
        Self { parts, started, inventory: InventoryCache::default(), history }
    }

    /// Everything, as it is now.
    pub(super) async fn report(&self) -> Report {
        let inventory = self.inventory.get(&self.parts.collection, self.ended()).await;
        let now = Timestamp::now();
        let (pulls, ended, throughput) = self.count(now);
        let backoff =
            self.parts.manager.as_ref().map(|manager| manager.backoff().into_iter().map(Into::into).collect());
        Report {
            node_name: self.parts.node_name.clone(),
            started: self.started,
            now,
            inventory,
            pulls,
            ended,
            throughput,
            backoff,
            pods: self.parts.pods.as_ref().map(pods),
            image_sets: match &self.parts.image_sets {
                None => FollowedSets::None,
                Some(sets) => sets().map_or(FollowedSets::Unknown, FollowedSets::Known),
            },
        }
    }

    /// Returns true while a pull runs.
    pub(super) fn is_busy(&self) -> bool {
        !self.parts.pulls.pulls().is_empty()
    }

    /// Changes with every pull that starts or ends.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.parts.pulls.changes()
    }

    /// Counts bytes until `stop`, with or without readers of the page.
    pub(super) async fn remember(&self, stop: &CancellationToken) {
        let mut turns = tokio::time::interval(COUNTED);
        turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while stop.run_until_cancelled(turns.tick()).await.is_some() {
            self.count(Timestamp::now());
        }
    }

    fn count(&self, now: Timestamp) -> (Vec<PullInFlight>, Vec<EndedPull>, Vec<Interval>) {
        let (pulls, ended) = (self.parts.pulls.pulls(), self.parts.pulls.ended());
        let mut history = self.history.lock();
        history.count(now.as_second(), &pulls, &ended);
        let throughput = history.intervals();
        drop(history);
        (pulls, ended, throughput)
    }

    /// Returns the number of pulls that ended so far.
    fn ended(&self) -> u64 {
        self.parts.pulls.ended().last().map_or(0, |pull| pull.number)
    }
}

fn pods(board: &PodBoard) -> PodReport {
    let PodList { items, refused, .. } = serde_json::from_value(board.list()).unwrap_or_default();
    let mut pods: Vec<Pod> = items.iter().filter_map(|pod| Pod::of(pod).ok()).collect();
    pods.sort_by(|a, b| {
        let key = |pod: &Pod| (pod.metadata.namespace.clone(), pod.metadata.name.clone());
        key(a).cmp(&key(b))
    });
    let first = board.events.last().saturating_sub(EVENTS as u64);
    let mut events = board.events.since(first);
    events.reverse();
    let refused = refused.into_iter().filter(|refused| !refused.skipped).collect();
    PodReport { pods, refused, events }
}
