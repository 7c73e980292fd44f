//! [`Relist`]: the PLEG. It lists all sandboxes and containers of the runtime, once a second or when an event reports a
//! change, finds the pods that have changed, and wakes them. A list that fails changes nothing: an unknown state never
//! counts as removed. A runtime that hangs holds up this task alone. Run by the sync loop.

use std::sync::Arc;
use std::time::Duration;

use cri_api::{ContainerEvents, Kind, RuntimeService};
use futures::StreamExt as _;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::WorkerState;
use super::runtime_pods::{Differ, RuntimePods};
use super::shared::AgentState;

/// Events that arrive together cause one list.
const GATHER: Duration = Duration::from_millis(100);
/// Time after which a stream without an error counts as supported.
const TRUST: Duration = Duration::from_secs(5);
/// A stream that broke is opened again after so long.
const REOPEN: Duration = Duration::from_secs(10);
/// After so many changes without an event, events are not relied on any more.
const MISSED: u32 = 3;

/// Asks for everything, again and again.
pub(super) struct Relist {
    shared: Arc<AgentState>,
    runtime: Arc<dyn RuntimeService>,
    differ: Differ,
    last: Option<Instant>,
    events: EventStream,
}

/// The events of the runtime, as far as it has them.
enum EventStream {
    /// The runtime has no events, or they are not reliable.
    Never,
    /// They are asked for at that time.
    Closed(Instant),
    /// They are listened to since that time.
    Open { stream: ContainerEvents, since: Instant, missed: u32 },
}

/// Reason for a list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RelistCause {
    Timer,
    Event,
    Stop,
}

impl Relist {
    pub(super) fn new(shared: Arc<AgentState>) -> Self {
        let runtime = Arc::clone(&shared.runtime.parts().runtime);
        let events = if shared.options.events { EventStream::Closed(Instant::now()) } else { EventStream::Never };
        Self { shared, runtime, differ: Differ::default(), last: None, events }
    }

    /// Works until `stop`. A question that hangs is given up then.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let work = async {
            let mut why = RelistCause::Timer;
            loop {
                self.relist(why).await;
                why = self.wait(&stop).await;
                if why == RelistCause::Stop {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = work => {}
        }
    }

    async fn wait(&mut self, stop: &CancellationToken) -> RelistCause {
        let now = Instant::now();
        if let EventStream::Closed(at) = &self.events
            && *at <= now
        {
            self.events = EventStream::Open { stream: self.runtime.container_events(), since: now, missed: 0 };
        }
        let often = now + self.shared.options.relist;
        let seldom = now + self.shared.options.evented_relist.max(self.shared.options.relist);
        let (stream, due) = match &mut self.events {
            EventStream::Open { stream, since, .. } => {
                (Some(stream), if *since + TRUST <= now { seldom } else { often })
            }
            EventStream::Never | EventStream::Closed(_) => (None, often),
        };
        let received = async {
            match stream {
                Some(stream) => stream.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => RelistCause::Stop,
            received = received => match received {
                Some(Ok(_)) => {
                    self.gather().await;
                    RelistCause::Event
                }
                // Without events, the runtime is listed at once and at the short interval.
                Some(Err(error)) => self.lost(Some(&error)),
                None => self.lost(None),
            },
            () = sleep_until(due) => RelistCause::Timer,
        }
    }

    /// Receives the events that arrive together with a first one.
    async fn gather(&mut self) {
        let until = Instant::now() + GATHER;
        let EventStream::Open { stream, .. } = &mut self.events else { return };
        loop {
            tokio::select! {
                biased;
                () = sleep_until(until) => return,
                received = stream.next() => if !matches!(received, Some(Ok(_))) {
                    self.events = EventStream::Closed(Instant::now() + REOPEN);
                    return;
                },
            }
        }
    }

    fn lost(&mut self, error: Option<&cri_api::Error>) -> RelistCause {
        self.events = match error {
            Some(error) if error.kind() == Kind::Unimplemented => {
                tracing::debug!(%error, "runtime has no container events");
                EventStream::Never
            }
            error => {
                let error = error.map(tracing::field::display);
                tracing::debug!(error, "stream of container events ended");
                EventStream::Closed(Instant::now() + REOPEN)
            }
        };
        RelistCause::Timer
    }

    async fn relist(&mut self, why: RelistCause) {
        let shared = Arc::clone(&self.shared);
        let asked = Instant::now();
        let since = self.last.replace(asked).map(|last| asked.saturating_duration_since(last));
        let answer = ask(&shared, &*Arc::clone(&self.runtime)).await;
        shared.options.metrics.relisted(asked.elapsed(), since, shared.wall_clock());
        let (sandboxes, containers) = match answer {
            Ok(lists) => lists,
            Err(error) => {
                if shared.health.failed(&error) {
                    // Each pod reports that it cannot be observed.
                    shared.wake_all(false, |slot| slot.state() != WorkerState::Terminated);
                }
                return;
            }
        };
        shared.table().answered(asked);
        let changed = self.differ.differ(&sandboxes, &containers);
        let before = shared.last_seen();
        if before.is_none() || !changed.is_empty() {
            let pods = before.as_deref().unwrap_or(&RuntimePods::default()).after(&changed, &sandboxes, &containers);
            shared.options.metrics.runtime(&pods);
            let pods = Arc::new(pods);
            shared.seen.send_replace(Some(Arc::clone(&pods)));
            let table = shared.table();
            for uid in &changed {
                // A change that the pod's own worker made and has observed since is not reported.
                if let Some(slot) = table.slots.get(&**uid)
                    && !slot.has_seen(pods.pods.get(&**uid))
                {
                    slot.wake(false);
                }
            }
        }
        if shared.health.answered(Instant::now()) {
            // Pods whose last sync failed try again, and need not wait out their delay.
            shared.wake_all(true, |slot| slot.record().error.is_some() || slot.state() != WorkerState::Terminated);
        }
        self.judge(why, !changed.is_empty() && before.is_some());
    }

    /// Stops relying on events if they miss changes. One event may always be on its way.
    fn judge(&mut self, why: RelistCause, changed: bool) {
        let EventStream::Open { missed, since, .. } = &mut self.events else { return };
        if !changed || since.elapsed() <= self.shared.options.evented_relist {
            return;
        }
        *missed = if why == RelistCause::Event { 0 } else { *missed + 1 };
        if *missed >= MISSED {
            tracing::warn!("container events are incomplete, not using them");
            self.events = EventStream::Never;
        }
    }
}

/// Lists sandboxes before containers: an object created in between is then a container whose sandbox is not known yet.
async fn ask(
    shared: &AgentState,
    runtime: &dyn RuntimeService,
) -> cri_api::Result<(Vec<cri_api::PodSandbox>, Vec<cri_api::Container>)> {
    if shared.runtime_name.get().is_none() {
        let version = runtime.version().await?;
        // No other code sets it.
        let _ = shared.runtime_name.set(version.runtime_name);
    }
    let sandboxes = runtime.list_pod_sandboxes(None).await?;
    Ok((sandboxes, runtime.list_containers(None).await?))
}
