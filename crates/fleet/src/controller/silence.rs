//! Which nodes are silent: they may start or have started, and their report did not change for longer than the deadline of the set.
//! Only seen times count, so that a replica that takes over waits for the whole deadline again. Called by [`super::pass`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt as _;
use tokio::time::Instant;

use crate::api::NodeImages;

/// A node in a rollout: uid of the set, generation, name of the node.
type Key = (String, i64, String);

#[derive(Default)]
pub(super) struct Silence {
    /// Version of each node's report, and when this process saw it first.
    reports: HashMap<String, (String, Instant)>,
    /// Since when each node is expected to report.
    expected: HashMap<Key, Instant>,
    /// Nodes that the current pass expected.
    current: HashMap<Key, Instant>,
}

impl Silence {
    /// Begins a pass with these reports.
    pub(super) fn begin(&mut self, reports: &[Arc<NodeImages>], now: Instant) {
        let mut seen = HashMap::with_capacity(reports.len());
        for report in reports {
            let (name, version) = (report.name_any(), report.resource_version().unwrap_or_default());
            let known = self.reports.remove(&name).filter(|(known, _)| *known == version);
            seen.insert(name, known.unwrap_or((version, now)));
        }
        self.reports = seen;
        self.expected = std::mem::take(&mut self.current);
    }

    /// Returns true if a node that is expected to report has been silent for `deadline`.
    pub(super) fn is_silent(
        &mut self,
        uid: &str,
        generation: i64,
        node: &str,
        deadline: Duration,
        now: Instant,
    ) -> bool {
        let key = (uid.to_owned(), generation, node.to_owned());
        let since = self.expected.get(&key).copied().unwrap_or(now);
        self.current.insert(key, since);
        let last = self.reports.get(node).map_or(since, |(_, seen)| since.max(*seen));
        now.duration_since(last) >= deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(version: &str) -> Arc<NodeImages> {
        let mut report = NodeImages::new("n", crate::api::NodeImagesSpec {});
        report.metadata.resource_version = Some(version.into());
        Arc::new(report)
    }

    #[test]
    fn a_node_is_silent_when_neither_release_nor_report_is_recent() {
        let (start, deadline) = (Instant::now(), Duration::from_secs(10));
        let mut silence = Silence::default();
        let mut pass = |second: u64, version: Option<&str>, generation| {
            let now = start + Duration::from_secs(second);
            let reports: Vec<_> = version.map(report).into_iter().collect();
            silence.begin(&reports, now);
            silence.is_silent("uid", generation, "n", deadline, now)
        };
        assert!(!pass(0, None, 1));
        assert!(!pass(9, None, 1));
        assert!(pass(10, None, 1), "no report at all");
        assert!(!pass(11, Some("1"), 1), "the first report");
        assert!(!pass(20, Some("1"), 1));
        assert!(pass(21, Some("1"), 1));
        assert!(!pass(22, Some("2"), 1), "another report");
        assert!(!pass(40, Some("2"), 2), "another rollout");
        assert!(pass(50, Some("2"), 2));
    }
}
