//! [`Bench`]: the tools of a case: calls that fail the case with a clear message, names of fixtures, and the cleanup
//! that restores the service.

use base::lock::Mutex;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::{Deviation, Harness, Identity};
use crate::testing::fixtures::{self, FixtureImage};
use crate::{Error, FilesystemUsage, Image, ImageFilter, ImageService, ImageSpec, Kind, PullImageRequest};

/// Reason for which a case did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The rule is broken.
    Failed(String),
    /// The harness lacks what the case needs.
    NotApplicable(String),
}

impl Stop {
    pub(super) fn context(self, context: impl fmt::Display) -> Self {
        match self {
            Self::Failed(why) => Self::Failed(format!("{context}: {why}")),
            other => other,
        }
    }
}

pub(super) type Checked<T> = Result<T, Stop>;
pub(super) type Outcome = Checked<()>;

/// Fails the case unless the condition holds.
macro_rules! check {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::testing::conformance::Stop::Failed(format!($($text)+)));
        }
    };
}

/// Fails the case unless both sides are equal.
macro_rules! check_eq {
    ($got:expr, $want:expr, $($text:tt)+) => {
        let (got, want) = (&$got, &$want);
        if got != want {
            let what = format!($($text)+);
            return Err($crate::testing::conformance::Stop::Failed(format!("{what}: got {got:?}, want {want:?}")));
        }
    };
}

pub(super) use {check, check_eq};

/// The surroundings of one case.
pub struct Bench<'h> {
    harness: &'h dyn Harness,
    service: Arc<dyn ImageService>,
    /// Guards the ids that were pulled, for the sweep.
    pulled: Mutex<BTreeSet<String>>,
}

impl<'h> Bench<'h> {
    pub(super) fn new(harness: &'h dyn Harness) -> Self {
        Self { harness, service: harness.service(), pulled: Mutex::default() }
    }

    pub(super) fn harness(&self) -> &'h dyn Harness {
        self.harness
    }

    pub(super) fn service(&self) -> Arc<dyn ImageService> {
        Arc::clone(&self.service)
    }

    pub(super) fn deviates(&self, deviation: Deviation) -> bool {
        self.harness.deviations().contains(&deviation)
    }

    /// `domain/repository:tag` of the first name of a fixture.
    pub(super) fn name(&self, fixture: &FixtureImage) -> String {
        let (repository, tag) = fixture.names[0];
        format!("{}:{tag}", self.repository(repository))
    }

    /// Returns every `domain/repository:tag` of a fixture.
    pub(super) fn names(&self, fixture: &FixtureImage) -> Vec<String> {
        fixture.names.iter().map(|(repository, tag)| format!("{}:{tag}", self.repository(repository))).collect()
    }

    /// `domain/repository`.
    pub(super) fn repository(&self, repository: &str) -> String {
        format!("{}/{repository}", self.harness.domain())
    }

    /// `domain/repository@digest` of the first name of a fixture.
    pub(super) fn by_digest(&self, fixture: &FixtureImage) -> Checked<String> {
        Ok(format!("{}@{}", self.repository(fixture.names[0].0), self.identity(fixture)?.digest))
    }

    pub(super) fn identity(&self, fixture: &FixtureImage) -> Checked<Identity> {
        self.harness.identity(fixture).ok_or_else(|| {
            Stop::NotApplicable(format!("the harness did not publish {}:{}", fixture.names[0].0, fixture.names[0].1))
        })
    }

    /// Pulls, and remembers the image for the sweep.
    pub(super) async fn pull(&self, name: &str) -> Checked<String> {
        self.try_pull(PullImageRequest::new(name)).await.map_err(|e| failed(&format!("pull {name}"), &e))
    }

    /// Pulls in the same way, and returns the service's own error.
    pub(super) async fn try_pull(&self, request: PullImageRequest) -> Result<String, Error> {
        let id = self.service.pull_image(request).await?;
        self.remember(&id);
        Ok(id)
    }

    pub(super) fn remember(&self, id: &str) {
        self.pulled.lock().insert(id.to_owned());
    }

    /// Pulls a fixture by its first name, and gives what its status is then.
    pub(super) async fn pulled(&self, fixture: &FixtureImage) -> Checked<Image> {
        let name = self.name(fixture);
        self.pull(&name).await?;
        self.present(&name).await
    }

    pub(super) async fn status(&self, name: &str) -> Checked<Option<Image>> {
        let status = self.service.image_status(&ImageSpec::new(name), false).await;
        Ok(status.map_err(|e| failed(&format!("status of {name}"), &e))?.image)
    }

    /// Returns the status of an image that must be present.
    pub(super) async fn present(&self, name: &str) -> Checked<Image> {
        let image = self.status(name).await?;
        image.ok_or_else(|| Stop::Failed(format!("status of {name}: the image is absent")))
    }

    /// Checks that no image has this name or id.
    pub(super) async fn absent(&self, name: &str) -> Outcome {
        match self.status(name).await? {
            None => Ok(()),
            Some(image) => Err(Stop::Failed(format!("status of {name}: the image should be absent, got {image:?}"))),
        }
    }

    pub(super) async fn list(&self, filter: Option<&ImageFilter>) -> Checked<Vec<Image>> {
        self.service.list_images(filter).await.map_err(|e| failed("list", &e))
    }

    /// Entry of the list for an image id. More than one entry fails the case.
    pub(super) async fn listed(&self, id: &str) -> Checked<Option<Image>> {
        let mut images: Vec<Image> = self.list(None).await?.into_iter().filter(|image| image.id == id).collect();
        check!(images.len() <= 1, "the list shows image {id} {} times", images.len());
        Ok(images.pop())
    }

    pub(super) async fn remove(&self, name: &str) -> Outcome {
        self.service.remove_image(&ImageSpec::new(name)).await.map_err(|e| failed(&format!("remove {name}"), &e))
    }

    /// Returns the file system that callers read: the first one.
    pub(super) async fn filesystem(&self) -> Checked<FilesystemUsage> {
        let info = self.service.image_fs_info().await.map_err(|e| failed("fs info", &e))?;
        info.image_filesystems.into_iter().next().ok_or_else(|| Stop::Failed("fs info names no file system".into()))
    }

    /// Removes every fixture and everything that was pulled, and checks that the list no longer shows it.
    pub(super) async fn sweep(&self) -> Outcome {
        let mut ids = self.pulled.lock().clone();
        ids.extend(fixtures::IMAGES.iter().filter_map(|f| self.harness.identity(f)).map(|i| i.id.to_string()));
        for image in self.list(None).await? {
            if ids.contains(&image.id) {
                self.remove(&image.id).await?;
            }
        }
        let left: Vec<Image> = self.list(None).await?.into_iter().filter(|image| ids.contains(&image.id)).collect();
        check!(left.is_empty(), "images are still listed after their removal: {left:?}");
        Ok(())
    }
}

/// Returns the failure for an unexpected error.
pub(super) fn failed(operation: &str, error: &Error) -> Stop {
    Stop::Failed(format!("{operation}: {}: {error}", error.kind()))
}

/// Checks that a call failed, with one of these kinds.
pub(super) fn fails_with<T: fmt::Debug>(what: &str, result: Result<T, Error>, kinds: &[Kind]) -> Outcome {
    match result {
        Ok(value) => Err(Stop::Failed(format!("{what}: should fail, got {value:?}"))),
        Err(error) if kinds.contains(&error.kind()) => {
            check!(!error.message().is_empty(), "{what}: the error has no message");
            Ok(())
        }
        Err(error) => Err(Stop::Failed(format!("{what}: want kind {kinds:?}, got {}: {error}", error.kind()))),
    }
}

/// Needs a thing that not every harness has.
pub(super) fn needs<T>(thing: Option<T>, what: &str) -> Checked<T> {
    thing.ok_or_else(|| Stop::NotApplicable(format!("the harness has no {what}")))
}
