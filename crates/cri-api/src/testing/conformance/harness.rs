//! [`Harness`]: what the suite needs to know of an implementation, of the registry that it pulls from, and of the
//! known ways in which a peer differs.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use oci::Digest;

use crate::ImageService;
use crate::testing::fixtures::FixtureImage;

/// An implementation under test, and the registry with the [fixtures](crate::testing::fixtures) that it reaches.
#[async_trait]
pub trait Harness: Send + Sync {
    /// Name of the implementation, for the report.
    fn name(&self) -> &str;

    /// Returns the implementation.
    fn service(&self) -> Arc<dyn ImageService>;

    /// Domain below which all fixtures are published: `127.0.0.1:5000`.
    fn domain(&self) -> String;

    /// Returns another domain that serves the same fixtures, if there is one.
    fn other_domain(&self) -> Option<String> {
        None
    }

    /// Returns true if names without a domain (`docker.io`) reach the fixtures as well.
    fn serves_default_domain(&self) -> bool {
        false
    }

    /// Returns the digests of a fixture as published, or `None` if it was not.
    fn identity(&self, fixture: &FixtureImage) -> Option<Identity>;

    /// Moves a tag of the registry below [`Harness::domain`] to this fixture. Returns false if the registry
    /// cannot be changed.
    async fn move_tag(&self, repository: &str, tag: &str, to: &FixtureImage) -> bool {
        let _ = (repository, tag, to);
        false
    }

    /// Makes the registry hold back its answers to pulls until [`Hold::release`]. `None`: it cannot.
    fn hold_pulls(&self) -> Option<Hold> {
        None
    }

    /// Runtime handlers that the implementation knows in addition to the default one; `None`: it refuses no handler.
    fn runtime_handlers(&self) -> Option<Vec<String>> {
        None
    }

    /// Returns true if pulls report progress. A service behind a CRI socket reports none.
    fn reports_progress(&self) -> bool {
        false
    }

    /// Known ways in which this peer differs.
    fn deviations(&self) -> &[Deviation] {
        &[]
    }

    /// Longest time for one case. A peer with [`Deviation::FsUsageIsLate`] needs two minutes.
    fn case_timeout(&self) -> Duration {
        Duration::from_secs(60)
    }
}

/// The digests of a published fixture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Digest of the image config, which is the image id.
    pub id: Digest,
    /// Digest that its tags resolve to: of the index where it is published as one, else of the manifest.
    pub digest: Digest,
}

/// Pulls that are being held back at the registry. Dropping it lets everything through again.
pub struct Hold {
    reached: Pin<Box<dyn Future<Output = ()> + Send>>,
    given_up: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    release: Option<Box<dyn FnOnce() + Send>>,
}

impl Hold {
    /// `reached` ends when a request of a pull is being held back; `release` lets everything through again.
    pub fn new(reached: impl Future<Output = ()> + Send + 'static, release: impl FnOnce() + Send + 'static) -> Self {
        Self { reached: Box::pin(reached), given_up: None, release: Some(Box::new(release)) }
    }

    /// Adds a future that completes when no request is held back any more, because the clients disconnected. A registry that
    /// can see its clients disconnect should provide it: the suite then waits for it, instead of watching for a while.
    #[must_use]
    pub fn with_given_up(mut self, given_up: impl Future<Output = ()> + Send + 'static) -> Self {
        self.given_up = Some(Box::pin(given_up));
        self
    }

    /// Waits until the clients have disconnected, where the registry can see that.
    pub async fn given_up(&mut self) {
        if let Some(given_up) = self.given_up.take() {
            given_up.await;
        }
    }

    /// Waits until a request is being held back.
    pub async fn reached(&mut self) {
        self.reached.as_mut().await;
    }

    /// Lets everything through again.
    pub fn release(self) {
        drop(self);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            release();
        }
    }
}

/// A known difference of a peer. Never declared for an implementation of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deviation {
    /// containerd (all versions): ListImages ignores its filter and answers everything.
    ListFilterIgnored,
    /// containerd 1.6: the status of an empty name is not refused. It is the beginning of every id: nothing where there is
    /// no image, *the* image where there is one, and ambiguous otherwise.
    EmptyNameIsIdPrefix,
    /// containerd 1.6: removing an empty name removes the image where there is just one. Seen only without a client that
    /// refuses to send such a removal, as `cri-grpc`'s does.
    EmptyNameRemovesTheOnlyImage,
    /// containerd 1.6: a pull of a reference that cannot be parsed fails with code `Unknown`.
    BadReferenceIsUnknown,
    /// containerd: usage of the file system is sampled every ten seconds, so that it follows late; the blobs of images
    /// are not counted.
    FsUsageIsLate,
    /// containerd: prefixes of an image id below three digits resolve as well.
    ShorterIdsResolve,
    /// containerd 1.6: an ambiguous short id has code `Unknown`.
    AmbiguousIdIsUnknown,
    /// containerd 1.6: a pull fails with `NotFound` where the same image is removed at the same time, because it writes
    /// its names one after the other.
    PullsFailDuringRemoval,
    /// CRI-O: the verbose information holds `imageSpec`, but no `chainID`.
    NoChainId,
}
