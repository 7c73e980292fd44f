//! Reports of nodes by set, so that a pass over many sets does not search them again for each one. Called by [`super::pass`].

use std::collections::HashMap;
use std::sync::Arc;

use kube::ResourceExt as _;

use crate::api::{ImageReport, NodeImages, SetReport};

/// The reports of one node.
#[derive(Default)]
pub(super) struct NodeReports<'a> {
    sets: HashMap<&'a str, &'a SetReport>,
    images: HashMap<&'a str, Vec<&'a ImageReport>>,
}

impl<'a> NodeReports<'a> {
    fn of(report: &'a NodeImages) -> Self {
        let mut reports = Self::default();
        let Some(status) = &report.status else { return reports };
        reports.sets.extend(status.sets.iter().map(|set| (set.name.as_str(), set)));
        for image in &status.images {
            reports.images.entry(&image.set).or_default().push(image);
        }
        reports
    }

    /// Returns the report of a rollout of a set.
    pub(super) fn set(&self, name: &str, uid: &str, generation: Option<i64>) -> Option<&'a SetReport> {
        let set = self.sets.get(name)?;
        (set.uid == uid && Some(set.generation) == generation).then_some(*set)
    }

    /// Returns the reports of a set's images.
    pub(super) fn images(&self, set: &str) -> Vec<&'a ImageReport> {
        self.images.get(set).cloned().unwrap_or_default()
    }
}

/// Returns the reports by node.
pub(super) fn index(reports: &[Arc<NodeImages>]) -> HashMap<String, NodeReports<'_>> {
    reports.iter().map(|report| (report.name_any(), NodeReports::of(report))).collect()
}
