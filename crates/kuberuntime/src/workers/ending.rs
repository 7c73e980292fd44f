//! The end of a pod: everything of it is stopped, then everything is taken away, each tried until it is so. Called by the
//! [`Worker`] of the pod.

use std::sync::Arc;
use std::time::Duration;

use cri_api::ContainerState;
use tokio::time::{Instant, sleep_until};

use super::WorkerState;
use super::look::found;
use super::metrics::Work;
use super::worker::{Way, Worker, in_full};
use crate::pod::Pod;
use crate::status::ObservedPod;
use crate::sync::PodRuntimeError;

impl Worker {
    /// Ends everything of the pod that runs, and tries until nothing does.
    pub(super) async fn end(&mut self) -> Way {
        let shared = Arc::clone(&self.looker.shared);
        let slot = Arc::clone(&self.looker.slot);
        shared.probes.ending(&slot.owner.uid);
        self.looker.enter(WorkerState::Terminating);
        let begun = Instant::now();
        loop {
            match self.end_once().await {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => {
                    self.looker.told_error(Some(in_full(&error)));
                    let wait = self.jitter.spread(shared.options.error_backoff);
                    if let Way::Stopped = self.pause(wait).await {
                        return Way::Stopped;
                    }
                    continue;
                }
            }
            if self.stop.is_cancelled() {
                return Way::Stopped;
            }
        }
        shared.options.metrics.worked(Work::Kill, begun.elapsed());
        self.looker.told_error(None);
        Way::On
    }

    /// Ends the pod; returns true if nothing of it runs any more.
    async fn end_once(&mut self) -> Result<bool, PodRuntimeError> {
        let (shared, slot) = (Arc::clone(&self.looker.shared), Arc::clone(&self.looker.slot));
        let orders = self.orders.borrow_and_update().clone();
        let observed = self.looker.look().await?;
        if orders.end.is_some() {
            self.told_deletion(orders.pod.as_ref(), &observed);
        }
        if !runs(&observed) && observed.sandboxes.is_empty() {
            // A sandbox that is not ready may still hold an address, until it is stopped.
            return Ok(true);
        }
        let order = orders.end.unwrap_or_default();
        let shorter = async {
            loop {
                if self.orders.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
                let newer = self.orders.borrow_and_update().end;
                if newer.is_some_and(|newer| newer.is_shorter_than(order)) {
                    return;
                }
            }
        };
        tokio::select! {
            ended = shared.runtime.end_pod(orders.pod.as_deref(), &observed, order.grace) => ended?,
            () = shorter => return Ok(false),
            never = self.looker.keep_looking() => match never {},
        }
        let after = self.looker.look().await?;
        if runs(&after) {
            let what = format!("end pod {}_{}", slot.owner.name, slot.owner.namespace);
            let source = cri_api::Error::new(cri_api::Kind::Internal, "containers of it still run");
            return Err(PodRuntimeError { what, source });
        }
        Ok(true)
    }

    /// From now on the pod is told as one that is being deleted.
    fn told_deletion(&self, pod: Option<&Arc<Pod>>, observed: &ObservedPod) {
        let slot = &self.looker.slot;
        let mut face = slot.face();
        if face.ending.is_some() {
            return;
        }
        let mut ending = pod.map_or_else(|| found(&slot.owner, Some(observed)), |pod| Pod::clone(pod));
        ending.metadata.deletion_timestamp.get_or_insert(self.looker.shared.wall_clock());
        face.ending = Some(Arc::new(ending));
        drop(face);
        self.looker.tell();
    }

    /// Waits until nobody wants the pod any more.
    pub(super) async fn linger(&mut self) -> Way {
        while self.orders.borrow_and_update().end.is_none() {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Way::Stopped,
                _ = self.orders.changed() => {}
                () = self.looker.slot.wake.notified() => {
                    // Its containers may be collected.
                    let _ = self.looker.look().await;
                }
            }
        }
        Way::On
    }

    /// Takes everything of the pod away, and tries until nothing is left.
    pub(super) async fn remove(&mut self) -> Way {
        let shared = Arc::clone(&self.looker.shared);
        loop {
            let removed = match self.looker.look().await {
                Ok(observed) if runs(&observed) => {
                    // Somebody started something in it.
                    if let Way::Stopped = self.end().await {
                        return Way::Stopped;
                    }
                    continue;
                }
                Ok(observed) => {
                    self.told_deletion(self.looker.slot.pod().as_ref(), &observed);
                    shared.runtime.remove_pod(&observed).await
                }
                Err(error) => Err(error),
            };
            let Err(error) = removed else { return Way::On };
            self.looker.told_error(Some(in_full(&error)));
            let wait = self.jitter.spread(shared.options.error_backoff);
            if let Way::Stopped = self.pause(wait).await {
                return Way::Stopped;
            }
        }
    }

    /// Waits for so long, or until something happens that promises more luck.
    async fn pause(&mut self, wait: Duration) -> Way {
        let until = Instant::now() + wait;
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Way::Stopped,
                () = sleep_until(until) => return Way::On,
                _ = self.orders.changed() => return Way::On,
                () = self.looker.slot.wake.notified() => if self.looker.slot.take_whole() {
                    return Way::On;
                },
            }
        }
    }
}

fn runs(observed: &ObservedPod) -> bool {
    observed.containers.iter().any(|run| matches!(run.state, ContainerState::Running | ContainerState::Unknown))
}
