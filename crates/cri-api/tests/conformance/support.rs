//! The fake as a harness of the conformance suite, and the means to sabotage it. Used by the tests of this crate.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};

use async_trait::async_trait;
use cri_api::testing::conformance::{Deviation, Harness, Hold, Identity};
use cri_api::testing::fixtures::{self, FixtureImage};
use cri_api::testing::{CallKind, FakeImage, FakeImageService};
use cri_api::{
    Error, FsInfo, Image, ImageFilter, ImageService, ImageSpec, ImageStatus, ImageUsage, Kind, PullImageRequest, Result,
};

pub(crate) const DOMAIN: &str = "registry.test:5000";

/// The fake, plain or behind a saboteur.
pub(crate) struct FakeHarness {
    pub(crate) fake: FakeImageService,
    pub(crate) service: Arc<dyn ImageService>,
    pub(crate) deviations: Vec<Deviation>,
    pub(crate) tells_given_up: bool,
}

impl FakeHarness {
    pub(crate) fn new() -> Self {
        let fake = FakeImageService::new();
        for domain in [DOMAIN, "mirror.test", "docker.io"] {
            fake.publish_fixtures(domain);
        }
        fake.know_only_handlers(&["kata"]);
        Self { service: Arc::new(fake.clone()), fake, deviations: Vec::new(), tells_given_up: true }
    }

    pub(crate) fn sabotaged(sabotage: Sabotage) -> Self {
        let mut harness = Self::new();
        harness.tells_given_up = false;
        harness.service = Arc::new(Saboteur {
            fake: harness.fake.clone(),
            sabotage,
            seen: Mutex::default(),
            tracker: tokio_util::task::TaskTracker::new(),
        });
        harness
    }
}

#[async_trait]
impl Harness for FakeHarness {
    fn name(&self) -> &str {
        "fake"
    }

    fn service(&self) -> Arc<dyn ImageService> {
        Arc::clone(&self.service)
    }

    fn domain(&self) -> String {
        DOMAIN.into()
    }

    fn other_domain(&self) -> Option<String> {
        Some("mirror.test".into())
    }

    fn serves_default_domain(&self) -> bool {
        true
    }

    fn identity(&self, fixture: &FixtureImage) -> Option<Identity> {
        // Asked for very often, and always the same.
        static KNOWN: LazyLock<BTreeMap<&str, Identity>> = LazyLock::new(|| {
            let identity = |image: FakeImage| Identity { id: image.id(), digest: image.digest() };
            fixtures::IMAGES.iter().map(|f| (f.content, identity(FakeImage::of_fixture(f)))).collect()
        });
        KNOWN.get(fixture.content).cloned()
    }

    async fn move_tag(&self, repository: &str, tag: &str, to: &FixtureImage) -> bool {
        self.fake.publish(&format!("{DOMAIN}/{repository}:{tag}"), &FakeImage::of_fixture(to));
        true
    }

    fn hold_pulls(&self) -> Option<Hold> {
        let gate = self.fake.faults().hold(CallKind::PullImage);
        let fake = self.fake.clone();
        let reached = gate.clone();
        let hold = Hold::new(async move { reached.until_arrived(1).await }, move || {
            fake.faults().clear(CallKind::PullImage);
        });
        // A saboteur that goes on alone is to be caught by what becomes visible, not by hanging here.
        Some(if self.tells_given_up { hold.with_given_up(async move { gate.until_waiting(0).await }) } else { hold })
    }

    fn runtime_handlers(&self) -> Option<Vec<String>> {
        Some(vec!["kata".into()])
    }

    fn deviations(&self) -> &[Deviation] {
        &self.deviations
    }

    fn case_timeout(&self) -> std::time::Duration {
        std::time::Duration::from_secs(5)
    }
}

/// One way of being wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// Shows what it showed of an image once, even after the removal.
    RemembersRemoved,
    /// Removes only the name that was given.
    RemovesOneName,
    /// Fails a removal of what is absent.
    RemovalOfAbsentFails,
    /// Ignores the filter of the list.
    FilterIgnored,
    /// Lists names in the reverse order.
    NamesUnsorted,
    /// Answers the manifest digest to a pull.
    AnswersManifestDigest,
    /// Takes an empty name for the beginning of every id.
    EmptyNameIsIdPrefix,
    /// Has no kind for a reference that cannot be parsed.
    BadReferenceIsUnknown,
    /// Takes any number of digits for a short id.
    ShorterIdsResolve,
    /// Has no kind for an ambiguous id.
    AmbiguousIdIsUnknown,
    /// Has no chain id in the information.
    NoChainId,
    /// Goes on with a pull whose caller went away.
    PullsOnAlone,
    /// Lists an image once per tag.
    ListsPerTag,
    /// Records a tag although a digest was pulled.
    TagsDigestPulls,
    /// Says `Internal` where a manifest is missing.
    MissingIsInternal,
    /// Never tells the user.
    UserIsForgotten,
    /// Finds no short ids.
    NoShortIds,
    /// Takes the first of several images.
    FirstOfAmbiguous,
    /// Counts no bytes.
    UsageIsConstant,
    /// Drops the old image when its tag moves.
    MovedTagTakesImageAlong,
    /// Has no time.
    NoTimestamp,
    /// Puts the config into every status.
    AlwaysVerbose,
    /// Hangs on the list.
    ListHangs,
    /// Takes every runtime handler.
    AnyHandler,
}

struct Saboteur {
    fake: FakeImageService,
    sabotage: Sabotage,
    /// Guards images seen in a status, by the name that was asked for.
    seen: Mutex<BTreeMap<String, Image>>,
    tracker: tokio_util::task::TaskTracker,
}

impl Saboteur {
    /// The only image whose id begins so; an error where there are several.
    async fn only_image(&self, prefix: &str) -> Result<Option<String>> {
        let mut images = self.fake.list_images(None).await?;
        images.retain(|image| image.id.trim_start_matches("sha256:").starts_with(prefix));
        match images.as_slice() {
            [] => Ok(None),
            [image] => Ok(Some(image.id.clone())),
            _ => Err(Error::new(Kind::Unknown, "ambiguous digest string")),
        }
    }

    fn forget_ambiguity(&self, error: Error) -> Error {
        let ambiguous = self.sabotage == Sabotage::AmbiguousIdIsUnknown && error.message().contains("ambiguous");
        if ambiguous { Error::new(Kind::Unknown, error.message()) } else { error }
    }
    fn spoil(&self, mut image: Image) -> Image {
        match self.sabotage {
            Sabotage::NamesUnsorted => {
                image.repo_tags.reverse();
                image.repo_digests.reverse();
            }
            Sabotage::UserIsForgotten => {
                image.uid = None;
                image.username.clear();
            }
            Sabotage::TagsDigestPulls if image.repo_tags.is_empty() => {
                let names = image.repo_digests.iter().filter_map(|name| name.split_once('@'));
                image.repo_tags = names.map(|(name, _)| format!("{name}:latest")).collect();
            }
            _ => {}
        }
        image
    }
}

#[async_trait]
impl ImageService for Saboteur {
    async fn list_images(&self, filter: Option<&ImageFilter>) -> Result<Vec<Image>> {
        let filter = filter.filter(|_| self.sabotage != Sabotage::FilterIgnored);
        if self.sabotage == Sabotage::ListHangs {
            std::future::pending::<()>().await;
        }
        let images = self.fake.list_images(filter).await?;
        let mut images: Vec<Image> = images.into_iter().map(|image| self.spoil(image)).collect();
        if self.sabotage == Sabotage::ListsPerTag {
            let per_tag = |image: Image| -> Vec<Image> {
                let tags = image.repo_tags.clone();
                tags.into_iter().map(|tag| Image { repo_tags: vec![tag], ..image.clone() }).collect()
            };
            images = images.into_iter().flat_map(per_tag).collect();
        }
        Ok(images)
    }

    async fn image_status(&self, image: &ImageSpec, verbose: bool) -> Result<ImageStatus> {
        let text = image.image.as_str();
        let hex = text.trim_start_matches("sha256:");
        let is_short_id = hex.len() < 64 && hex.bytes().all(|b| b.is_ascii_hexdigit());
        match self.sabotage {
            Sabotage::EmptyNameIsIdPrefix if text.is_empty() => {
                let Some(id) = self.only_image("").await? else { return Ok(ImageStatus::default()) };
                return self.fake.image_status(&ImageSpec::new(id), verbose).await;
            }
            Sabotage::ShorterIdsResolve if hex.len() < 3 && is_short_id && !text.is_empty() => {
                let Some(id) = self.only_image(hex).await? else { return Ok(ImageStatus::default()) };
                return self.fake.image_status(&ImageSpec::new(id), verbose).await;
            }
            Sabotage::NoShortIds if is_short_id => return Ok(ImageStatus::default()),
            _ => {}
        }
        let verbose = verbose || self.sabotage == Sabotage::AlwaysVerbose;
        let result = self.fake.image_status(image, verbose).await;
        if self.sabotage == Sabotage::FirstOfAmbiguous && result.is_err() && is_short_id && !text.is_empty() {
            let first = self.fake.list_images(None).await?.into_iter().find(|i| i.id.contains(hex));
            return Ok(ImageStatus { image: first, ..ImageStatus::default() });
        }
        let mut status = result.map_err(|e| self.forget_ambiguity(e))?;
        if self.sabotage == Sabotage::NoChainId {
            for info in status.info.values_mut() {
                *info = info.replace("\"chainID\"", "\"other\"");
            }
        }
        status.image = status.image.map(|image| self.spoil(image));
        if self.sabotage == Sabotage::RemembersRemoved {
            let mut seen = self.seen.lock().expect("no test panics with it");
            match &status.image {
                Some(image) => drop(seen.insert(text.to_owned(), image.clone())),
                None => status.image = seen.get(text).cloned(),
            }
        }
        Ok(status)
    }

    async fn pull_image(&self, request: PullImageRequest) -> Result<String> {
        let mut request = request;
        match self.sabotage {
            Sabotage::PullsOnAlone => {
                let fake = self.fake.clone();
                let alone = self.tracker.spawn(async move { fake.pull_image(request).await });
                alone.await.expect("a pull does not panic")
            }
            Sabotage::AnswersManifestDigest => {
                let name = request.image.image.clone();
                let id = self.fake.pull_image(request).await?;
                let image = self.fake.image_status(&ImageSpec::new(name), false).await?.image;
                let digest = image.and_then(|i| i.repo_digests.first()?.split_once('@').map(|(_, d)| d.to_owned()));
                Ok(digest.unwrap_or(id))
            }
            Sabotage::MissingIsInternal => self.fake.pull_image(request).await.map_err(|e| match e.kind() {
                Kind::NotFound => Error::new(Kind::Internal, e.message()),
                _ => e,
            }),
            Sabotage::BadReferenceIsUnknown => self.fake.pull_image(request).await.map_err(|e| match e.kind() {
                Kind::InvalidArgument if !e.message().contains("handler") => Error::new(Kind::Unknown, e.message()),
                _ => e,
            }),
            Sabotage::MovedTagTakesImageAlong => {
                let name = request.image.clone();
                let before = self.fake.image_status(&name, false).await.ok().and_then(|status| status.image);
                let id = self.fake.pull_image(request).await?;
                if let Some(before) = before.filter(|before| before.id != id) {
                    self.fake.remove_image(&ImageSpec::new(before.id)).await?;
                }
                Ok(id)
            }
            Sabotage::AnyHandler => {
                request.image.runtime_handler.clear();
                self.fake.pull_image(request).await
            }
            _ => self.fake.pull_image(request).await,
        }
    }

    async fn remove_image(&self, image: &ImageSpec) -> Result<()> {
        if self.sabotage == Sabotage::EmptyNameIsIdPrefix && image.image.is_empty() {
            let Some(id) = self.only_image("").await? else { return Ok(()) };
            return self.fake.remove_image(&ImageSpec::new(id)).await;
        }
        let status = self.fake.image_status(image, false).await;
        let present = status.map_err(|e| self.forget_ambiguity(e))?.image;
        match self.sabotage {
            Sabotage::RemovalOfAbsentFails if present.is_none() => {
                Err(Error::new(Kind::NotFound, format!("remove {}: not found", image.image)))
            }
            Sabotage::RemovesOneName => {
                self.fake.remove_image(image).await?;
                let Some(present) = present else { return Ok(()) };
                for tag in present.repo_tags.iter().filter(|tag| **tag != image.image && image.image != present.id) {
                    self.fake.pull_image(PullImageRequest::new(tag)).await?;
                }
                Ok(())
            }
            _ => self.fake.remove_image(image).await,
        }
    }

    async fn image_fs_info(&self) -> Result<FsInfo> {
        let mut info = self.fake.image_fs_info().await?;
        match self.sabotage {
            Sabotage::UsageIsConstant => info.image_filesystems[0].used_bytes = Some(4096),
            Sabotage::NoTimestamp => info.image_filesystems[0].timestamp = 0,
            _ => {}
        }
        Ok(info)
    }

    async fn image_usage(&self, image: &ImageSpec) -> Result<Option<ImageUsage>> {
        self.fake.image_usage(image).await
    }
}
