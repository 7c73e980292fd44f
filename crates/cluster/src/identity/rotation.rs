//! [`Rotation`]: renews the certificate of a node after 70 to 90 % of its life, with a new key and new connections. One that ran out
//! meanwhile is had again by the bootstrap kubeconfig. Called by the binary.

use std::path::PathBuf;
use std::time::Duration;

use image_manager::WallClock;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::files::IdentityFiles;
use super::join::{JoinError, blocking, obtain};
use crate::client::{ClusterClient, chain};
use crate::retry::{Backoff, Random};

/// Longest sleep: the clock may be set meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// Renews the certificate of a node that joined by itself.
pub struct Rotation {
    /// Files of the key and the certificate, which a renewal replaces.
    pub files: IdentityFiles,
    /// Path of the bootstrap kubeconfig, for a certificate that has expired.
    pub bootstrap: PathBuf,
    /// Name of the node.
    pub node: String,
    /// Client of the node: requests renewals, and reads its credentials again after them.
    pub client: ClusterClient,
    /// Clock by which certificates expire.
    pub clock: WallClock,
    /// Spreads renewals over 70 to 90 % of a certificate's life, and the waits after failures.
    pub random: Random,
}

impl Rotation {
    /// Renews until `stop`.
    pub async fn run(&self, stop: &CancellationToken) {
        let mut backoff = Backoff::new(Duration::from_secs(5), Duration::from_secs(600));
        // The moment is chosen once for each certificate.
        let mut chosen: Option<(Timestamp, Timestamp)> = None;
        while !stop.is_cancelled() {
            let wait = match stop.run_until_cancelled(self.turn(&mut chosen)).await {
                None => return,
                Some(Ok(wait)) => {
                    backoff.reset();
                    wait
                }
                Some(Err(error)) => {
                    tracing::warn!(error = chain(&error), "the certificate of this node is not renewed yet");
                    backoff.next(&self.random)
                }
            };
            stop.run_until_cancelled(tokio::time::sleep(wait)).await;
        }
    }

    /// Renews if it is time; answers how long to wait.
    async fn turn(&self, chosen: &mut Option<(Timestamp, Timestamp)>) -> Result<Duration, JoinError> {
        let validity = blocking(&self.files, IdentityFiles::validity).await?;
        let now = (self.clock)();
        let over = validity.is_none_or(|validity| validity.is_over(now));
        if let Some(validity) = validity {
            let renewal = match chosen {
                Some((of, at)) if *of == validity.not_after => *at,
                _ => validity.renewal(&self.random),
            };
            *chosen = Some((validity.not_after, renewal));
            if now < renewal {
                let left = Duration::try_from(renewal.duration_since(now)).unwrap_or_default();
                return Ok(left.min(LONGEST_SLEEP));
            }
        }
        if over {
            let client = ClusterClient::open(&self.bootstrap).await?;
            obtain(&self.files, &client, &self.bootstrap, &self.node, &self.clock, &self.random).await?;
        } else {
            let by = &self.files.kubeconfig;
            obtain(&self.files, &self.client, by, &self.node, &self.clock, &self.random).await?;
        }
        self.client.renew().await?;
        tracing::info!("this node has a new client certificate");
        Ok(Duration::ZERO)
    }
}
