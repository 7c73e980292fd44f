//! Events of containerd: a wait for the removal of images and layers by any client.

use crate::client::answer;
use crate::error::Error;
use crate::{CRI_NAMESPACE, Client, Result, pb};

/// Topics of removals. containerd 1.x has no event of a snapshot.
const REMOVALS: [&str; 2] = ["/images/delete", "/snapshot/remove"];

impl Client {
    /// Returns when the next image or snapshot is removed. A removal before the call does not count.
    ///
    /// # Errors
    /// The call failed, or containerd ended.
    pub async fn removal(&self) -> Result<()> {
        const CALL: &str = "Events.Subscribe";
        let filters = REMOVALS.map(|topic| format!("namespace=={CRI_NAMESPACE},topic=={topic:?}")).to_vec();
        let mut events = answer(CALL, "", self.events().subscribe(pb::events::SubscribeRequest { filters })).await?;
        match events.message().await.map_err(|status| Error::of_status(CALL, "", &status))? {
            Some(_) => Ok(()),
            None => Err(Error::of_status(CALL, "", &tonic::Status::unavailable("containerd ended the events"))),
        }
    }
}
