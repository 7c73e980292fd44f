//! [`ReclaimContainers`]: what disk pressure relief asks of the collector of containers.

use async_trait::async_trait;

/// Removes containers that have ended. Implemented by the collector of containers.
#[async_trait]
pub trait ReclaimContainers: Send + Sync {
    /// Removes the containers that have ended: all of pods that are gone, and of others those beyond the policy.
    ///
    /// # Errors
    /// A text for people, if not all could be removed.
    async fn delete_all_unused_containers(&self) -> Result<(), String>;
}
