//! [`RemoteCollection`]: the collection of the agent that has the root or the state of the images that a command means. Each request is one of
//! its API. Called by the commands.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use image_manager::gc::Pattern;
use image_manager::{ImageHold, ReclaimSpace, ReclaimedSpace};
use oci::ReferenceOrId;

use super::collects::{CollectionError, Collects, chain};
use crate::api::client::{self, AskError, Method};
use crate::api::gc::{
    CollectPlan, CollectReport, CollectRequest, CollectedContainers, CollectedTarget, Pin, Pins, patterns_query,
};
use crate::api::wire::Done;

/// The collection of the agent that answers on a socket.
#[derive(Debug)]
pub struct RemoteCollection {
    socket: PathBuf,
}

impl RemoteCollection {
    /// Returns the collection of the agent that has the embedded root and answers on `socket`.
    pub async fn of_root(socket: &Path) -> Result<Self, CollectionError> {
        let of: CollectedTarget = client::ask_json(socket, Method::GET, "/v1/gc").await?;
        if of.images.is_empty() {
            return Ok(Self { socket: socket.to_owned() });
        }
        Err(CollectionError::OtherImages { socket: socket.to_owned(), images: of.images })
    }

    /// Returns the collection of the agent on `socket`, whichever images it has.
    pub async fn of_agent(socket: &Path) -> Result<Self, CollectionError> {
        let _: CollectedTarget = client::ask_json(socket, Method::GET, "/v1/gc").await?;
        Ok(Self { socket: socket.to_owned() })
    }

    /// Returns the agent on `socket`, if one answers and collects the images behind `endpoint`.
    pub async fn of_endpoint(socket: &Path, endpoint: &str) -> Option<Self> {
        let of: Result<CollectedTarget, AskError> = client::ask_json(socket, Method::GET, "/v1/gc").await;
        of.is_ok_and(|of| of.images == endpoint).then(|| Self { socket: socket.to_owned() })
    }
}

#[async_trait]
impl Collects for RemoteCollection {
    async fn plan(&self, request: &CollectRequest) -> Result<CollectPlan, CollectionError> {
        Ok(client::ask_at_length(&self.socket, Method::GET, &format!("/v1/gc/plan?{}", request.query())).await?)
    }

    async fn collect(&self, request: &CollectRequest) -> Result<CollectReport, CollectionError> {
        Ok(client::ask_at_length(&self.socket, Method::POST, &format!("/v1/gc/collect?{}", request.query())).await?)
    }

    async fn status(&self) -> Result<serde_json::Value, CollectionError> {
        Ok(client::ask_at_length(&self.socket, Method::GET, "/v1/status").await?)
    }

    async fn containers(&self, dry_run: bool) -> Result<CollectedContainers, CollectionError> {
        let method = if dry_run { Method::GET } else { Method::POST };
        Ok(client::ask_at_length(&self.socket, method, "/v1/gc/containers").await?)
    }

    async fn names(&self) -> Result<BTreeMap<String, Vec<String>>, CollectionError> {
        Ok(client::ask_at_length(&self.socket, Method::GET, "/v1/names").await?)
    }

    async fn pins(&self) -> Result<Vec<Pin>, CollectionError> {
        pins_of(&self.socket, Method::GET, "/v1/pins").await
    }

    async fn pin(&self, patterns: &[Pattern]) -> Result<Vec<Pin>, CollectionError> {
        pins_of(&self.socket, Method::POST, &format!("/v1/pins?{}", patterns_query(patterns))).await
    }

    async fn unpin(&self, patterns: &[Pattern]) -> Result<Vec<Pin>, CollectionError> {
        pins_of(&self.socket, Method::POST, &format!("/v1/pins/remove?{}", patterns_query(patterns))).await
    }

    async fn protect(&self, id: &str) -> Result<(), CollectionError> {
        // The serializer is no value that may live across the request.
        let query = url::form_urlencoded::Serializer::new(String::new()).append_pair("image", id).finish();
        let target = format!("/v1/gc/protect?{query}");
        let Done {} = client::ask_json(&self.socket, Method::POST, &target).await?;
        Ok(())
    }
}

#[async_trait]
impl ReclaimSpace for RemoteCollection {
    async fn reclaim_space(&self, needed: Option<u64>) -> ReclaimedSpace {
        let query = needed.map(|needed| format!("?needed={needed}")).unwrap_or_default();
        let made = client::ask_at_length(&self.socket, Method::POST, &format!("/v1/gc/room{query}")).await;
        made.unwrap_or_else(|error| ReclaimedSpace { problem: Some(chain(&error)), ..ReclaimedSpace::default() })
    }

    fn hold(&self, _: &ReferenceOrId) -> Option<ImageHold> {
        // The agent holds what is pulled through it.
        None
    }
}

/// Returns the pins that the agent answers; it answers once a running collection has ended.
async fn pins_of(socket: &Path, method: Method, target: &str) -> Result<Vec<Pin>, CollectionError> {
    let pins: Pins = client::ask_at_length(socket, method, target).await?;
    Ok(pins.pins)
}
