//! [`FigurePace`]: how often figures of rollouts are written. The status of a set is sent to the watch of every node, so that the cost of a
//! write grows with the cluster. Pure. Called by [`super::pass`].

use std::time::Duration;

use tokio::time::Instant;

/// Events for watches of nodes in a second, as far as they only have other figures.
const EVENTS_PER_SECOND: u32 = 2000;
/// Time whose writes may follow one another at once: passes without changes are that far apart.
const BURST: Duration = Duration::from_secs(5);

/// The limit of all sets together.
#[derive(Debug, Default)]
pub(super) struct FigurePace {
    /// Time from which the next write is permitted.
    next: Option<Instant>,
}

impl FigurePace {
    /// Permits a write in a cluster of so many nodes, or postpones it.
    pub(super) fn permits(&mut self, nodes: usize, now: Instant) -> bool {
        if self.next.is_some_and(|next| next > now) {
            return false;
        }
        let cost = Duration::from_secs(1) / EVENTS_PER_SECOND * u32::try_from(nodes).unwrap_or(u32::MAX);
        let credited = now.checked_sub(BURST).unwrap_or(now);
        self.next = Some(self.next.map_or(credited, |next| next.max(credited)) + cost);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn figures_of_many_sets_cost_a_bounded_number_of_events() {
        for nodes in [100, 1000, 5000] {
            let (mut pace, begin) = (FigurePace::default(), Instant::now());
            let mut writes = 0;
            // Two hundred sets have other figures in each pass.
            while begin.elapsed() < Duration::from_secs(100) {
                writes += (0..200).take_while(|_| pace.permits(nodes, Instant::now())).count();
                tokio::time::advance(Duration::from_millis(500)).await;
            }
            let events = writes * nodes;
            assert!((190_000..=225_000).contains(&events), "{nodes} nodes: {writes} writes");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_time_permits_a_short_burst() {
        let mut pace = FigurePace::default();
        tokio::time::advance(Duration::from_secs(3600)).await;
        let burst = (0..1000).take_while(|_| pace.permits(1000, Instant::now())).count();
        assert_eq!(burst, 11);
    }
}
