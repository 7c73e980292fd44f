//! [`SetBoard`]: the state of the sets on this node, for the other parts of the process: the newest state of all images, failed pulls, and
//! the reports that the API server accepted. Written by [`super::daemon`] and [`super::writer`]; read by [`super::metrics`], and by the
//! binary for the admin API and the status page.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::lock::Mutex;
use jiff::Timestamp;

use crate::api::NodeImagesStatus;

/// State of the sets on this node. Copies share it.
#[derive(Clone, Debug, Default)]
pub struct SetBoard {
    /// Guards the state and the counts.
    facts: Arc<Mutex<BoardFacts>>,
}

/// The content of a board.
#[derive(Clone, Debug, Default)]
pub(super) struct BoardFacts {
    /// `None` until the sets and the present images are known.
    pub(super) status: Option<Arc<NodeImagesStatus>>,
    /// Failed pulls by reason.
    pub(super) failures: BTreeMap<String, u64>,
    /// Time of the last report that the API server accepted.
    pub(super) last_report: Option<Timestamp>,
    /// Reports that were not written.
    pub(super) failed_reports: u64,
}

impl SetBoard {
    /// Returns the newest state, with all images of all sets; `None` until the sets of the node and the present images are known.
    #[must_use]
    pub fn status(&self) -> Option<Arc<NodeImagesStatus>> {
        self.facts.lock().status.clone()
    }

    /// Returns the time of the last report that the API server accepted.
    #[must_use]
    pub fn last_report(&self) -> Option<Timestamp> {
        self.facts.lock().last_report
    }

    pub(super) fn facts(&self) -> BoardFacts {
        self.facts.lock().clone()
    }

    pub(super) fn publish(&self, status: Arc<NodeImagesStatus>) {
        self.facts.lock().status = Some(status);
    }

    /// Counts a failed pull.
    pub(super) fn pull_failed(&self, reason: &str) {
        *self.facts.lock().failures.entry(reason.to_owned()).or_default() += 1;
    }

    /// Records that the API server accepted a report.
    pub(super) fn report_written(&self, at: Timestamp) {
        self.facts.lock().last_report = Some(at);
    }

    /// Counts a report that was not written.
    pub(super) fn report_failed(&self) {
        self.facts.lock().failed_reports += 1;
    }
}
