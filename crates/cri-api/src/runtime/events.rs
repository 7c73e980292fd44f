//! Events of containers, as a runtime reports them.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::{ContainerStatus, PodSandboxStatus};
use crate::{Error, Result};

/// Stream of the events of a runtime's containers. It ends with an error or when the runtime disconnects; the reader
/// then has to list everything again.
pub type ContainerEvents = Pin<Box<dyn Stream<Item = Result<ContainerEvent>> + Send>>;

/// An event of a container or a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerEvent {
    /// Id of the container, or of the sandbox.
    pub container_id: String,
    /// Kind of the event.
    pub kind: ContainerEventKind,
    /// When, nanoseconds since the epoch.
    pub created_at: i64,
    /// The sandbox after it.
    pub sandbox: Option<PodSandboxStatus>,
    /// The containers of the sandbox after it.
    pub containers: Vec<ContainerStatus>,
}

/// Kind of an event of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ContainerEventKind {
    /// Created.
    Created,
    /// Started.
    Started,
    /// Ended.
    Stopped,
    /// Removed.
    Deleted,
    /// A kind that this version does not know: list the containers again.
    #[default]
    Unknown,
}

/// The event stream of a runtime without events.
pub(super) struct Refused(Option<Error>);

impl Refused {
    pub(super) fn with(error: Error) -> ContainerEvents {
        Box::pin(Self(Some(error)))
    }
}

impl Stream for Refused {
    type Item = Result<ContainerEvent>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.take().map(Err))
    }
}
