//! The end of a pod: stops everything of it, then removes everything, and retries until both succeed. Called by the
//! [`Worker`] of the pod.

use std::sync::Arc;
use std::time::Duration;

use cri_api::ContainerState;
use tokio::time::{Instant, sleep_until};
use tracing::Instrument as _;

use super::WorkerState;
use super::metrics::WorkerOperation;
use super::observer::pod_from_runtime;
use super::slot::{EndOrder, Orders};
use super::worker::{PhaseEnd, Worker, in_full};
use crate::observed::ObservedPod;
use crate::pod::Pod;
use crate::sync::PodRuntimeError;

impl Worker {
    /// Ends everything of the pod that runs, and tries until nothing does.
    pub(super) async fn end(&mut self) -> PhaseEnd {
        let shared = Arc::clone(&self.observer.shared);
        let slot = Arc::clone(&self.observer.slot);
        shared.probes.ending(&slot.owner.uid);
        self.observer.enter(WorkerState::Terminating);
        let begun = Instant::now();
        loop {
            match self.end_once().await {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => {
                    self.observer.set_error(Some(in_full(&error)));
                    let wait = self.jitter.spread(shared.options.error_backoff);
                    if let PhaseEnd::Stopped = self.pause(wait).await {
                        return PhaseEnd::Stopped;
                    }
                    continue;
                }
            }
            if self.stop.is_cancelled() {
                return PhaseEnd::Stopped;
            }
        }
        shared.options.metrics.worked(WorkerOperation::Kill, begun.elapsed());
        self.observer.set_error(None);
        PhaseEnd::On
    }

    /// Ends the pod; returns true if nothing of it runs any more.
    async fn end_once(&mut self) -> Result<bool, PodRuntimeError> {
        let (shared, slot) = (Arc::clone(&self.observer.shared), Arc::clone(&self.observer.slot));
        let orders = self.orders.borrow_and_update().clone();
        let observed = self.observer.observe().await?;
        if orders.end.is_some() {
            self.mark_deletion(orders.pod.as_ref(), &observed);
        }
        if !runs(&observed) && observed.sandboxes.is_empty() {
            // A sandbox that is not ready may still hold an address, until it is stopped.
            return Ok(true);
        }
        let order = end_of(&orders, slot.record().end_grace);
        let shorter = async {
            loop {
                if self.orders.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
                if end_of(&self.orders.borrow_and_update(), None).is_shorter_than(order) {
                    return;
                }
            }
        };
        let span = pod_span!("syncTerminatingPod", slot.owner, update_type = WorkerOperation::Kill.as_str());
        let end = shared.runtime.end_pod(orders.pod.as_deref(), &observed, order.grace).instrument(span);
        tokio::select! {
            ended = end => ended?,
            () = shorter => return Ok(false),
            never = self.observer.keep_observing() => match never {},
        }
        let after = self.observer.observe().await?;
        if runs(&after) {
            let what = format!("end pod {}_{}", slot.owner.name, slot.owner.namespace);
            let source = cri_api::Error::new(cri_api::Kind::Internal, "containers of it still run");
            return Err(PodRuntimeError { what, source });
        }
        Ok(true)
    }

    /// Publishes the pod as being deleted from now on.
    fn mark_deletion(&self, pod: Option<&Arc<Pod>>, observed: &ObservedPod) {
        let slot = &self.observer.slot;
        let mut record = slot.record();
        if record.ending.is_some() {
            return;
        }
        let mut ending = pod.map_or_else(|| pod_from_runtime(&slot.owner, Some(observed)), |pod| Pod::clone(pod));
        ending.metadata.deletion_timestamp.get_or_insert(self.observer.shared.wall_clock());
        record.ending = Some(Arc::new(ending));
        drop(record);
        self.observer.publish();
    }

    /// Frees the volumes of a pod that has ended, as the kubelet does: it may be listed for long, and its disk is needed. What
    /// fails is tried again when the pod is removed.
    pub(super) async fn release_volumes(&self) {
        let (shared, owner) = (&self.observer.shared, &self.observer.slot.owner);
        if let Err(error) = shared.runtime.release_volumes(&owner.uid).await {
            let pod = format!("{}/{}", owner.namespace, owner.name);
            tracing::warn!(pod, error = in_full(&error), "cannot free the volumes of an ended pod");
        }
    }

    /// Waits until no source wants the pod any more.
    pub(super) async fn linger(&mut self) -> PhaseEnd {
        while self.orders.borrow_and_update().end.is_none() {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return PhaseEnd::Stopped,
                // Its deletion may have been asked for.
                _ = self.orders.changed() => self.observer.publish(),
                () = self.observer.slot.wake.notified() => {
                    // Its containers may be collected.
                    let _ = self.observer.observe().await;
                }
            }
        }
        PhaseEnd::On
    }

    /// Takes everything of the pod away, and tries until nothing is left.
    pub(super) async fn remove(&mut self) -> PhaseEnd {
        let shared = Arc::clone(&self.observer.shared);
        loop {
            let removed = match self.observer.observe().await {
                Ok(observed) if runs(&observed) => {
                    // A container was started in the pod after its end.
                    if let PhaseEnd::Stopped = self.end().await {
                        return PhaseEnd::Stopped;
                    }
                    continue;
                }
                Ok(observed) => {
                    self.mark_deletion(self.observer.slot.pod().as_ref(), &observed);
                    let owner = &self.observer.slot.owner;
                    let span = pod_span!("syncTerminatedPod", owner, update_type = WorkerOperation::Kill.as_str());
                    shared.runtime.remove_pod(&observed).instrument(span).await
                }
                Err(error) => Err(error),
            };
            let Err(error) = removed else { return PhaseEnd::On };
            self.observer.set_error(Some(in_full(&error)));
            let wait = self.jitter.spread(shared.options.error_backoff);
            if let PhaseEnd::Stopped = self.pause(wait).await {
                return PhaseEnd::Stopped;
            }
        }
    }

    /// Waits for so long, or until something happens that promises more luck.
    async fn pause(&mut self, wait: Duration) -> PhaseEnd {
        let until = Instant::now() + wait;
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return PhaseEnd::Stopped,
                () = sleep_until(until) => return PhaseEnd::On,
                _ = self.orders.changed() => return PhaseEnd::On,
                () = self.observer.slot.wake.notified() => if self.observer.slot.take_whole() {
                    return PhaseEnd::On;
                },
            }
        }
    }
}

/// Returns the time that a pod has for its end: by its order, and by the deletion that its API server reports.
fn end_of(orders: &Orders, grace: Option<i64>) -> EndOrder {
    let order = orders.end.unwrap_or(EndOrder { grace });
    let metadata = orders.pod.as_ref().map(|pod| &pod.metadata).filter(|of| of.deletion_timestamp.is_some());
    let deletion = EndOrder { grace: metadata.and_then(|metadata| metadata.deletion_grace_period_seconds) };
    if deletion.is_shorter_than(order) { deletion } else { order }
}

fn runs(observed: &ObservedPod) -> bool {
    observed.containers.iter().any(|run| matches!(run.state, ContainerState::Running | ContainerState::Unknown))
}
