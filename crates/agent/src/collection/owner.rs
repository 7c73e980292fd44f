//! [`Owner`]: who collects the images that a command means: this process, or the agent that has the root or the state. What
//! is asked and answered is the same; the way there differs. Called by the commands.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use image_manager::gc::Pattern;
use image_manager::{Hold, MakeRoom, Room};

use super::{Collection, CollectionError};
use crate::api::client::{self, AskError, Method};
use crate::api::gc::{
    CollectPlan, CollectReport, CollectRequest, CollectedContainers, CollectedTarget, Pin, Pins, patterns_query,
};
use crate::api::wire::Done;

/// The process that collects.
#[derive(Debug)]
pub enum Owner {
    /// This process.
    Here(Arc<Collection>),
    /// The agent that answers on this socket.
    Agent(PathBuf),
}

impl Owner {
    /// The agent that has the embedded root and answers on `socket`.
    pub async fn of_root(socket: &Path) -> Result<Self, CollectionError> {
        let of: CollectedTarget = client::ask_json(socket, Method::GET, "/v1/gc").await?;
        if of.images.is_empty() {
            return Ok(Self::Agent(socket.to_owned()));
        }
        Err(CollectionError::OtherImages { socket: socket.to_owned(), images: of.images })
    }

    /// Returns the agent on `socket`, if one answers and collects the images behind `endpoint`.
    pub async fn of_endpoint(socket: &Path, endpoint: &str) -> Option<Self> {
        let of: Result<CollectedTarget, AskError> = client::ask_json(socket, Method::GET, "/v1/gc").await;
        of.is_ok_and(|of| of.images == endpoint).then(|| Self::Agent(socket.to_owned()))
    }

    /// The plan of a collection; nothing is removed.
    pub async fn plan(&self, request: &CollectRequest) -> Result<CollectPlan, CollectionError> {
        match self {
            Self::Here(collection) => collection.plan(request).await,
            Self::Agent(socket) => {
                Ok(client::ask_at_length(socket, Method::GET, &format!("/v1/gc/plan?{}", request.query())).await?)
            }
        }
    }

    /// Collects.
    pub async fn collect(&self, request: &CollectRequest) -> Result<CollectReport, CollectionError> {
        match self {
            Self::Here(collection) => collection.collect(request).await,
            Self::Agent(socket) => {
                Ok(client::ask_at_length(socket, Method::POST, &format!("/v1/gc/collect?{}", request.query())).await?)
            }
        }
    }

    /// The node's status of its images and their disk, as JSON.
    pub async fn status(&self) -> Result<serde_json::Value, CollectionError> {
        match self {
            Self::Here(collection) => serde_json::to_value(collection.status().await?).map_err(CollectionError::Status),
            Self::Agent(socket) => Ok(client::ask_at_length(socket, Method::GET, "/v1/status").await?),
        }
    }

    /// Returns the leftovers of containers: of a dry run those to remove and those to keep, otherwise the removed ones.
    pub async fn containers(&self, dry_run: bool) -> Result<CollectedContainers, CollectionError> {
        match self {
            Self::Here(collection) => collection.containers(dry_run).await,
            Self::Agent(socket) => {
                let method = if dry_run { Method::GET } else { Method::POST };
                Ok(client::ask_at_length(socket, method, "/v1/gc/containers").await?)
            }
        }
    }

    /// The names of the images by id.
    pub async fn names(&self) -> Result<BTreeMap<String, Vec<String>>, CollectionError> {
        match self {
            Self::Here(collection) => collection.names().await,
            Self::Agent(socket) => Ok(client::ask_at_length(socket, Method::GET, "/v1/names").await?),
        }
    }

    /// The pins, with what each holds.
    pub async fn pins(&self) -> Result<Vec<Pin>, CollectionError> {
        match self {
            Self::Here(collection) => collection.pins().await,
            Self::Agent(socket) => pins_of(socket, Method::GET, "/v1/pins").await,
        }
    }

    /// Pins.
    pub async fn pin(&self, patterns: &[Pattern]) -> Result<Vec<Pin>, CollectionError> {
        match self {
            Self::Here(collection) => collection.pin(patterns).await,
            Self::Agent(socket) => {
                pins_of(socket, Method::POST, &format!("/v1/pins?{}", patterns_query(patterns))).await
            }
        }
    }

    /// Takes pins away.
    pub async fn unpin(&self, patterns: &[Pattern]) -> Result<Vec<Pin>, CollectionError> {
        match self {
            Self::Here(collection) => collection.unpin(patterns).await,
            Self::Agent(socket) => {
                pins_of(socket, Method::POST, &format!("/v1/pins/remove?{}", patterns_query(patterns))).await
            }
        }
    }

    /// Selects this image last for a while, because it was pulled ahead of its use.
    pub async fn protect(&self, id: &str) -> Result<(), CollectionError> {
        match self {
            Self::Here(collection) => collection.protect(id).await,
            Self::Agent(socket) => {
                let mut query = url::form_urlencoded::Serializer::new(String::new());
                query.append_pair("image", id);
                let target = format!("/v1/gc/protect?{}", query.finish());
                let Done {} = client::ask_json(socket, Method::POST, &target).await?;
                Ok(())
            }
        }
    }
}

#[async_trait]
impl MakeRoom for Owner {
    async fn make_room(&self, needed: Option<u64>) -> Room {
        match self {
            Self::Here(collection) => collection.make_room(needed).await,
            Self::Agent(socket) => {
                let query = needed.map(|needed| format!("?needed={needed}")).unwrap_or_default();
                let made = client::ask_at_length(socket, Method::POST, &format!("/v1/gc/room{query}")).await;
                made.unwrap_or_else(|error| Room { problem: Some(super::chain(&error)), ..Room::default() })
            }
        }
    }

    fn hold(&self, image: &str) -> Option<Hold> {
        match self {
            Self::Here(collection) => collection.hold(image),
            // It holds what is pulled through it.
            Self::Agent(_) => None,
        }
    }
}

/// Returns the pins that the agent answers; it answers once a running collection has ended.
async fn pins_of(socket: &Path, method: Method, target: &str) -> Result<Vec<Pin>, CollectionError> {
    let pins: Pins = client::ask_at_length(socket, method, target).await?;
    Ok(pins.pins)
}
