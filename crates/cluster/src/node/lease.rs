//! The Lease of this node, renewed every ten seconds: by it the cluster knows that the node lives, and a second node of the same
//! name that the name is taken. The Lease names the process that wrote it; a process that did not renew it for the whole duration
//! has lost the name. Called by [`super::NodeKeeper`].

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::PostParams;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::options::{INSTANCE, NodeOptions};
use super::own_node::OwnNode;
use crate::client::{ClusterClient, Failure, chain, failure, text, within};
use crate::retry::{Backoff, jittered};

/// Namespace of the Leases of nodes.
const NAMESPACE: &str = "kube-node-lease";
/// Seconds after which a Lease that was not renewed is void.
const DURATION: i32 = 40;
/// Interval at which the Lease is renewed.
const RENEW: Duration = Duration::from_secs(10);
/// Interval at which the Lease of another process is read.
const READ: Duration = Duration::from_secs(5);
/// Number of attempts of a renewal before the next one.
const TRIES: usize = 5;
/// Maximum difference of clocks of nodes, in seconds: a day. A Lease that may be younger is watched before it is taken for
/// void.
const LEEWAY: i64 = 24 * 3600;

/// Another machine, or another installation on this one, is the node of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name of this node, {node}, is taken: {holder} renews its Lease. Give this node another name by --node-name, or end the \
     other one and start again after {DURATION} s"
)]
pub struct NameTaken {
    /// Name of the Node and its Lease.
    pub node: String,
    /// The other holder, as text.
    pub holder: String,
}

/// Keeps the Lease.
pub(super) struct LeaseKeeper<'a> {
    client: &'a ClusterClient,
    options: &'a NodeOptions,
    own: &'a OwnNode,
    /// The Lease as last written.
    latest: Option<Lease>,
}

/// Reason for which a Lease was not renewed.
enum Lost {
    Name(NameTaken),
    Failed(kube::Error),
}

impl From<kube::Error> for Lost {
    fn from(error: kube::Error) -> Self {
        Self::Failed(error)
    }
}

impl<'a> LeaseKeeper<'a> {
    pub(super) fn new(client: &'a ClusterClient, options: &'a NodeOptions, own: &'a OwnNode) -> Self {
        Self { client, options, own, latest: None }
    }

    fn api(&self) -> Api<Lease> {
        Api::namespaced(self.client.current(), NAMESPACE)
    }

    fn name(&self) -> &str {
        &self.options.identity.name
    }

    /// Returns when the name is ours: no other node has renewed the Lease for its whole duration. `foreign`: the Node was made by
    /// another installation.
    pub(super) async fn claim(&self, foreign: bool, stop: &CancellationToken) -> Result<(), NameTaken> {
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(7));
        let mut first: Option<(Instant, Option<MicroTime>)> = None;
        while !stop.is_cancelled() {
            let wait = match within(self.api().get_opt(self.name())).await {
                Err(error) => {
                    tracing::warn!(error = text(&error), "the Lease of this node cannot be read");
                    backoff.next(&self.options.random)
                }
                Ok(lease) => {
                    backoff.reset();
                    if self.is_free(lease.as_ref(), foreign) {
                        return Ok(());
                    }
                    let renewed = lease.as_ref().and_then(renew_time);
                    match &first {
                        None => {
                            tracing::info!(
                                holder = self.holder(lease.as_ref()),
                                "another node of this name was here: waiting until its Lease is void"
                            );
                            first = Some((Instant::now(), renewed));
                        }
                        Some((_, before)) if *before != renewed => return Err(self.taken(lease.as_ref())),
                        Some((since, _)) if since.elapsed() >= Duration::from_secs(DURATION.unsigned_abs().into()) => {
                            return Ok(());
                        }
                        Some(_) => {}
                    }
                    READ
                }
            };
            stop.run_until_cancelled(tokio::time::sleep(wait)).await;
        }
        Ok(())
    }

    /// Returns true if no other node can hold this Lease.
    fn is_free(&self, lease: Option<&Lease>, foreign: bool) -> bool {
        let Some(lease) = lease else {
            return !foreign;
        };
        let age = renew_time(lease).map(|MicroTime(at)| (self.options.clock)().as_second() - at.as_second());
        self.is_ours(lease) || age.is_none_or(|age| age > i64::from(DURATION) + LEEWAY)
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        instance(&lease.metadata) == Some(&self.options.instance)
    }

    fn holder(&self, lease: Option<&Lease>) -> String {
        match lease.and_then(|lease| instance(&lease.metadata)) {
            Some(instance) => format!("the imagelet {instance}"),
            None => "another kubelet".to_owned(),
        }
    }

    fn taken(&self, lease: Option<&Lease>) -> NameTaken {
        NameTaken { node: self.name().to_owned(), holder: self.holder(lease) }
    }

    /// Renews the Lease until `stop`, or until the name is lost.
    pub(super) async fn run(mut self, stop: &CancellationToken) -> Result<(), NameTaken> {
        while !stop.is_cancelled() {
            if let Some(ended) = stop.run_until_cancelled(self.turn()).await {
                ended?;
            }
            let wait = jittered(RENEW, 0.04, &self.options.random);
            stop.run_until_cancelled(tokio::time::sleep(wait)).await;
        }
        Ok(())
    }

    /// Renews once, tried a few times.
    async fn turn(&mut self) -> Result<(), NameTaken> {
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(7));
        for _ in 0..TRIES {
            match self.renew().await {
                Ok(()) => return Ok(()),
                Err(Lost::Name(taken)) => return Err(taken),
                Err(Lost::Failed(error)) => {
                    tracing::warn!(error = text(&error), "the Lease of this node was not renewed")
                }
            }
            tokio::time::sleep(backoff.next(&self.options.random)).await;
        }
        // Perhaps it is the connection, or the credentials changed on disk.
        if let Err(error) = self.client.renew().await {
            tracing::warn!(error = chain(&error), "the credentials of this node cannot be read again");
        }
        Ok(())
    }

    async fn renew(&mut self) -> Result<(), Lost> {
        let api = self.api();
        let written = match &self.latest {
            Some(latest) => within(api.replace(self.name(), &PostParams::default(), &self.next(latest))).await,
            None => match within(api.get_opt(self.name())).await? {
                Some(there) => within(api.replace(self.name(), &PostParams::default(), &self.next(&there))).await,
                None => within(api.create(&PostParams::default(), &self.next(&Lease::default()))).await,
            },
        };
        match written {
            Ok(lease) => {
                self.latest = Some(lease);
                Ok(())
            }
            Err(error) if matches!(failure(&error), Failure::Conflict | Failure::AlreadyExists) => {
                // A concurrent write. Check whether a second node of this name made it.
                let there = within(api.get_opt(self.name())).await?;
                if let Some(there) = &there
                    && !self.is_ours(there)
                {
                    return Err(Lost::Name(self.taken(Some(there))));
                }
                self.latest = there;
                Err(error.into())
            }
            Err(error) => {
                if failure(&error) == Failure::NotFound {
                    self.latest = None;
                }
                Err(error.into())
            }
        }
    }

    /// Returns the next content of the Lease.
    fn next(&self, latest: &Lease) -> Lease {
        let now: Timestamp = (self.options.clock)();
        let owner = self.own.get().as_ref().and_then(owner_of);
        let mut metadata = ObjectMeta { name: Some(self.name().to_owned()), ..latest.metadata.clone() };
        metadata.namespace = Some(NAMESPACE.to_owned());
        metadata.annotations.get_or_insert_default().insert(INSTANCE.to_owned(), self.options.instance.clone());
        if let Some(owner) = owner {
            metadata.owner_references = Some(vec![owner]);
        }
        Lease {
            metadata,
            spec: Some(LeaseSpec {
                holder_identity: Some(self.name().to_owned()),
                lease_duration_seconds: Some(DURATION),
                renew_time: Some(MicroTime(now)),
                ..latest.spec.clone().unwrap_or_default()
            }),
        }
    }
}

fn instance(metadata: &ObjectMeta) -> Option<&String> {
    metadata.annotations.as_ref()?.get(INSTANCE)
}

/// Returns true if another installation made this Node.
pub(super) fn is_foreign(node: &Node, ours: &str) -> bool {
    instance(&node.metadata).is_none_or(|instance| instance != ours)
}

fn renew_time(lease: &Lease) -> Option<MicroTime> {
    lease.spec.as_ref()?.renew_time.clone()
}

fn owner_of(node: &Node) -> Option<OwnerReference> {
    Some(OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.metadata.name.clone()?,
        uid: node.metadata.uid.clone()?,
        ..OwnerReference::default()
    })
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
