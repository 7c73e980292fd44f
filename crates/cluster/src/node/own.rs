//! The own Node as the API server has it, by a watch of this one object: labels and conditions that others change are noticed
//! without asking again and again. Called by [`super::NodeKeeper`].

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, WatchEvent, WatchParams};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::client::{ClusterClient, text, within};
use crate::retry::{Backoff, Random, jittered};

/// The own Node; `None` while it is not known, or was deleted.
pub(super) type OwnNode = watch::Sender<Option<Arc<Node>>>;

/// Longest time of a watch.
const WATCH: Duration = Duration::from_secs(280);

/// Keeps `own` up to date until `stop`.
pub(super) async fn keep(client: &ClusterClient, name: &str, own: &OwnNode, random: &Random, stop: &CancellationToken) {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
    let mut renewals = client.renewals();
    while !stop.is_cancelled() {
        renewals.mark_unchanged();
        let once = async {
            tokio::select! {
                ended = follow(client, name, own, random) => ended,
                // New credentials: the next watch has them.
                _ = renewals.changed() => Ok(()),
            }
        };
        let Some(ended) = stop.run_until_cancelled(once).await else {
            return;
        };
        let wait = match ended {
            Ok(()) => {
                backoff.reset();
                jittered(Duration::from_millis(500), 1.0, random)
            }
            Err(error) => {
                tracing::debug!(error = text(&error), "the own Node is not watched for now");
                backoff.next(random)
            }
        };
        stop.run_until_cancelled(tokio::time::sleep(wait)).await;
    }
}

/// Reads the Node and follows its changes until the watch ends.
async fn follow(client: &ClusterClient, name: &str, own: &OwnNode, random: &Random) -> Result<(), kube::Error> {
    let api: Api<Node> = Api::all(client.current());
    let field = format!("metadata.name={name}");
    let listed = within(api.list(&ListParams::default().fields(&field).match_any())).await?;
    let version = listed.metadata.resource_version.clone().unwrap_or_default();
    own.send_replace(listed.items.into_iter().next().map(Arc::new));
    let seconds = u32::try_from(jittered(WATCH, 0.03, random).as_secs()).unwrap_or(290);
    let events = api.watch(&WatchParams::default().fields(&field).timeout(seconds), &version).await?;
    pin_mut!(events);
    while let Some(event) = events.next().await {
        match event? {
            WatchEvent::Added(node) | WatchEvent::Modified(node) => {
                own.send_replace(Some(Arc::new(node)));
            }
            WatchEvent::Deleted(_) => {
                own.send_replace(None);
            }
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
        }
    }
    Ok(())
}
