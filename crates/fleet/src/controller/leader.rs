//! Election of the replica that works, by a Lease. A Lease that its holder did not renew for its whole duration, by the clock of this
//! process, is free. Called by [`super::Controller`].

use std::time::Duration;

use cluster::ClusterClient;
use cluster::client::{Failure, failure, text, within};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Api;
use kube::api::PostParams;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::options::{ControllerOptions, MANAGER};

/// Time after which a Lease that was not renewed is free.
const DURATION: Duration = Duration::from_secs(15);
/// Time without a renewal after which the holder stops working, before another replica can start.
const DEADLINE: Duration = Duration::from_secs(10);
/// Interval of attempts while another replica has the Lease, or the API server does not answer.
const RETRY: Duration = Duration::from_secs(2);
/// Interval of renewals: each is a write.
const RENEWAL: Duration = Duration::from_secs(5);

/// The part of a replica in the election.
pub(super) struct Election<'a> {
    client: &'a ClusterClient,
    options: &'a ControllerOptions,
    /// Version of the Lease when it last changed, and when this process saw that.
    seen: Option<(String, Instant)>,
}

impl<'a> Election<'a> {
    pub(super) fn new(client: &'a ClusterClient, options: &'a ControllerOptions) -> Self {
        Self { client, options, seen: None }
    }

    fn api(&self) -> Api<Lease> {
        Api::namespaced(self.client.current(), &self.options.namespace)
    }

    /// Returns true when this replica has the Lease, false at `stop`.
    pub(super) async fn acquire(&mut self, stop: &CancellationToken) -> bool {
        while !stop.is_cancelled() {
            match stop.run_until_cancelled(self.attempt()).await {
                Some(Ok(true)) => return true,
                Some(Err(error)) => {
                    self.options.metrics.write_failed("Lease");
                    tracing::warn!(error = text(&error), "cannot acquire the Lease of the controller");
                }
                Some(Ok(false)) | None => {}
            }
            stop.run_until_cancelled(tokio::time::sleep(RETRY)).await;
        }
        false
    }

    /// Renews the Lease; returns when it is lost, or at `stop`.
    pub(super) async fn hold(&mut self, stop: &CancellationToken) {
        let mut renewed = Instant::now();
        while !stop.is_cancelled() {
            let left = DEADLINE.saturating_sub(renewed.elapsed());
            let pause = match tokio::time::timeout(left, self.attempt()).await {
                Ok(Ok(true)) => {
                    renewed = Instant::now();
                    RENEWAL
                }
                Ok(Ok(false)) | Err(_) => return,
                Ok(Err(error)) => {
                    self.options.metrics.write_failed("Lease");
                    tracing::warn!(error = text(&error), "the Lease of the controller was not renewed");
                    RETRY
                }
            };
            stop.run_until_cancelled(tokio::time::sleep(pause)).await;
        }
    }

    /// Gives the Lease up, so that another replica need not wait.
    pub(super) async fn release(&mut self) {
        let Ok(Some(mut lease)) = within(self.api().get_opt(MANAGER)).await else { return };
        let Some(spec) = lease.spec.as_mut().filter(|spec| self.is_own(spec)) else { return };
        (spec.holder_identity, spec.lease_duration_seconds) = (Some(String::new()), Some(1));
        if let Err(error) = within(self.api().replace(MANAGER, &PostParams::default(), &lease)).await {
            tracing::debug!(error = text(&error), "the Lease of the controller was not released");
        }
    }

    fn is_own(&self, spec: &LeaseSpec) -> bool {
        spec.holder_identity.as_ref() == Some(&self.options.identity)
    }

    /// Takes or renews the Lease if it is free or this replica's own. Returns true if this replica has it now.
    async fn attempt(&mut self) -> Result<bool, kube::Error> {
        let known = within(self.api().get_opt(MANAGER)).await?;
        if let Some(known) = &known
            && !self.is_free(known)
        {
            return Ok(false);
        }
        let next = self.next(known.as_ref());
        let written = match known {
            Some(_) => within(self.api().replace(MANAGER, &PostParams::default(), &next)).await,
            None => within(self.api().create(&PostParams::default(), &next)).await,
        };
        match written {
            Ok(_) => Ok(true),
            // Another replica was faster.
            Err(error) if matches!(failure(&error), Failure::Conflict | Failure::AlreadyExists) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns true if the Lease is this replica's own, was given up, or was not renewed for its duration.
    fn is_free(&mut self, lease: &Lease) -> bool {
        let spec = lease.spec.clone().unwrap_or_default();
        if self.is_own(&spec) || spec.holder_identity.as_deref().unwrap_or_default().is_empty() {
            return true;
        }
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        match &self.seen {
            Some((seen, since)) if *seen == version => {
                let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
                since.elapsed() >= seconds.map_or(DURATION, Duration::from_secs)
            }
            _ => {
                self.seen = Some((version, Instant::now()));
                false
            }
        }
    }

    /// Returns the content of a Lease that this replica has.
    fn next(&self, known: Option<&Lease>) -> Lease {
        let now = MicroTime((self.options.clock)());
        let before = known.and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let is_renewal = self.is_own(&before);
        let transitions = before.lease_transitions.unwrap_or(0);
        let name = ObjectMeta { name: Some(MANAGER.to_owned()), ..ObjectMeta::default() };
        Lease {
            metadata: known.map_or(name, |lease| lease.metadata.clone()),
            spec: Some(LeaseSpec {
                holder_identity: Some(self.options.identity.clone()),
                lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
                acquire_time: before.acquire_time.filter(|_| is_renewal).or_else(|| Some(now.clone())),
                renew_time: Some(now),
                lease_transitions: Some(transitions + i32::from(!is_renewal && known.is_some())),
                ..LeaseSpec::default()
            }),
        }
    }
}
