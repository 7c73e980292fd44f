//! Lists images once, or repeatedly for `--watch`. If an agent holds the images, its API reports new lists. Otherwise the images are listed
//! periodically, and between two listings the store stays available to other processes. Called by `images`.

use std::path::Path;
use std::time::{Duration, SystemTime};

use agent::admin::images::ImageList;
use agent::api::client::{self, Events, Method};
use cri_api::Image;
use tokio::time::Instant;

use crate::app::App;
use crate::exit::{Failure, Outcome};

/// Pause between two checks for changes.
const PAUSE: Duration = Duration::from_millis(500);
/// A free store is opened at least this often, since a change right after the last listing may not be detected.
const LONGEST: Duration = Duration::from_secs(5);

/// Lists of images.
pub(super) struct ImageLists<'a> {
    app: &'a App,
    watches: bool,
    last: Option<Listing>,
    agent: Agent,
}

/// The last listing.
struct Listing {
    at: Instant,
    /// Time of the store's last change, if this process had to open the store.
    changed: Option<SystemTime>,
}

/// The agent that may have the images.
enum Agent {
    /// No agent has been asked yet.
    Unasked,
    /// The stream of its lists.
    Follows(Events),
    /// The agent does not provide its lists: an older one, or one that denies access.
    Silent,
}

impl<'a> ImageLists<'a> {
    /// Creates a single list, or with `watches` a list for every possible change.
    pub(super) fn new(app: &'a App, watches: bool) -> Self {
        Self { app, watches, last: None, agent: Agent::Unasked }
    }

    /// Returns the next list.
    pub(super) async fn next(&mut self) -> Outcome<Option<Vec<Image>>> {
        if !self.watches {
            return self.single().await;
        }
        if let Agent::Follows(events) = &mut self.agent {
            match events.next_of::<ImageList>("images").await {
                Ok(Some(list)) => return Ok(Some(list.images)),
                Ok(None) => tracing::debug!("the agent ended"),
                Err(error) => tracing::debug!(%error, "the agent tells of no more images"),
            }
            // Another agent may start.
            self.agent = Agent::Unasked;
        }
        while let Some(last) = &self.last {
            tokio::time::sleep(PAUSE).await;
            let changed = store::Store::changed_at(&self.app.config.root);
            if last.changed.is_none() || last.changed != changed || last.at.elapsed() >= LONGEST {
                break;
            }
        }
        let at = Instant::now();
        let now = self.app.list_images_now().await?;
        let changed = if now.own { store::Store::changed_at(&self.app.config.root) } else { None };
        self.last = Some(Listing { at, changed });
        if let Some(socket) = now.agent.filter(|_| matches!(self.agent, Agent::Unasked)) {
            self.agent = follow(&socket).await;
        }
        Ok(Some(now.images))
    }

    async fn single(&mut self) -> Outcome<Option<Vec<Image>>> {
        if self.last.is_some() {
            return Ok(None);
        }
        self.last = Some(Listing { at: Instant::now(), changed: None });
        let listed = self.app.marked_service().await?.list_images(None).await;
        listed.map(Some).map_err(|error| Failure::call("list images", &error))
    }
}

/// Requests the stream of the agent's lists.
async fn follow(socket: &Path) -> Agent {
    match client::events(socket, Method::GET, "/v1/images/events", Vec::new()).await {
        Ok(events) => {
            tracing::debug!(socket = %socket.display(), "following the images of the agent");
            Agent::Follows(events)
        }
        Err(error) => {
            tracing::debug!(%error, "the agent does not report its images");
            Agent::Silent
        }
    }
}
