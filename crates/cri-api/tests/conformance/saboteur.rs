//! A fake that is wrong in one way, to prove that the suite notices.

use base::lock::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering};

use async_trait::async_trait;
use cri_api::testing::{FakeImage, FakeImageService, fixtures};
use cri_api::{
    Error, FsInfo, Image, ImageFilter, ImageService, ImageSpec, ImageStatus, Kind, ProgressSink, PullImageRequest,
    Result,
};
use tokio_util::task::TaskTracker;

/// A way of being wrong.
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
    /// Removing an empty name removes the only image.
    EmptyNameRemovesTheOnlyImage,
    /// Has no kind for a reference that cannot be parsed.
    BadReferenceIsUnknown,
    /// Takes any number of digits for a short id.
    ShorterIdsResolve,
    /// Has no kind for an ambiguous id.
    AmbiguousIdIsUnknown,
    /// Has no chain id in the information.
    NoChainId,
    /// Continues a pull whose caller disconnected.
    PullsOnAlone,
    /// Lists an image once per tag.
    ListsPerTag,
    /// Records a tag although a digest was pulled.
    TagsDigestPulls,
    /// Says `Internal` where a manifest is missing.
    MissingIsInternal,
    /// Never reports the user.
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
    /// Records the manifest inside of an index instead of the index.
    RecordsInnerManifest,
    /// Counts an image's bytes again with every pull.
    SizeGrowsWithPulls,
    /// Records names as they were typed.
    RecordsShortNames,
    /// Keeps a name locked after the caller of its pull disconnected.
    LockSurvivesCaller,
    /// Does the step of a request when its image is visible already.
    StepComesLate,
    /// Continues when the step of a request fails.
    FailedStepIsIgnored,
    /// Loses the events of a pull.
    ProgressIsForgotten,
    /// Takes any tag of the repository for the one that was asked for.
    AnyTagWillDo,
    /// Lists two images at most.
    ListIsCut,
    /// Leaves the user out of the list.
    ListLacksUser,
    /// Removes every image along with one.
    RemovesEverything,
    /// Has a clock that runs backwards.
    TimeGoesBack,
}

pub(crate) struct Saboteur {
    fake: FakeImageService,
    sabotage: Sabotage,
    /// Guards images seen in a status, by the name that was asked for.
    seen: Mutex<BTreeMap<String, Image>>,
    tracker: TaskTracker,
    /// Guards how often each image id was pulled.
    pulls: Mutex<BTreeMap<String, u64>>,
    /// Guards names that are being pulled.
    locked: Mutex<BTreeSet<String>>,
    time: AtomicI64,
}

impl Saboteur {
    pub(crate) fn new(fake: FakeImageService, sabotage: Sabotage) -> Self {
        Self {
            fake,
            sabotage,
            seen: Mutex::default(),
            tracker: TaskTracker::new(),
            pulls: Mutex::default(),
            locked: Mutex::default(),
            time: AtomicI64::new(1_000_000),
        }
    }

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
            Sabotage::RecordsInnerManifest => {
                let indexed = FakeImage::of_fixture(&fixtures::INDEXED);
                let (outer, inner) = (indexed.digest().to_string(), indexed.manifest_digest().to_string());
                for digest in &mut image.repo_digests {
                    *digest = digest.replace(&outer, &inner);
                }
            }
            Sabotage::SizeGrowsWithPulls => {
                image.size += self.pulls.lock().get(&image.id).copied().unwrap_or(0);
            }
            Sabotage::RecordsShortNames => {
                for name in image.repo_tags.iter_mut().chain(&mut image.repo_digests) {
                    *name = name.trim_start_matches("docker.io/library/").to_owned();
                }
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
        if self.sabotage == Sabotage::ListIsCut {
            images.truncate(2);
        }
        if self.sabotage == Sabotage::ListLacksUser {
            images.iter_mut().for_each(|image| image.uid = None);
        }
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
        if self.sabotage == Sabotage::AnyTagWillDo && status.image.is_none() {
            let repository = text.rsplit_once(':').map_or(text, |(repository, _)| repository);
            let mut images = self.fake.list_images(None).await?;
            images.retain(|image| image.repo_tags.iter().any(|tag| tag.starts_with(repository)));
            status.image = images.pop();
        }
        if self.sabotage == Sabotage::NoChainId {
            for info in status.info.values_mut() {
                *info = info.replace("\"chainID\"", "\"other\"");
            }
        }
        status.image = status.image.map(|image| self.spoil(image));
        if self.sabotage == Sabotage::RemembersRemoved {
            let mut seen = self.seen.lock();
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
            Sabotage::SizeGrowsWithPulls => {
                let id = self.fake.pull_image(request).await?;
                *self.pulls.lock().entry(id.clone()).or_default() += 1;
                Ok(id)
            }
            Sabotage::LockSurvivesCaller => {
                let name = request.image.image.clone();
                {
                    let mut locked = self.locked.lock();
                    if !locked.insert(name.clone()) {
                        // Once refused, so that later cases are not spoilt as well.
                        locked.remove(&name);
                        return Err(Error::new(Kind::Unavailable, format!("{name} is being pulled")));
                    }
                }
                tokio::task::yield_now().await;
                let result = self.fake.pull_image(request).await;
                self.locked.lock().remove(&name);
                result
            }
            Sabotage::StepComesLate => {
                let step = std::mem::take(&mut request.before_visible);
                let id = self.fake.pull_image(request).await?;
                step.done().await?;
                Ok(id)
            }
            Sabotage::FailedStepIsIgnored => {
                let step = std::mem::take(&mut request.before_visible);
                let _ = step.done().await;
                self.fake.pull_image(request).await
            }
            Sabotage::ProgressIsForgotten => {
                request.progress = ProgressSink::default();
                self.fake.pull_image(request).await
            }
            Sabotage::AnyHandler => {
                request.image.runtime_handler.clear();
                self.fake.pull_image(request).await
            }
            _ => self.fake.pull_image(request).await,
        }
    }

    async fn remove_image(&self, image: &ImageSpec) -> Result<()> {
        if self.sabotage == Sabotage::EmptyNameRemovesTheOnlyImage && image.image.is_empty() {
            let Some(id) = self.only_image("").await? else { return Ok(()) };
            return self.fake.remove_image(&ImageSpec::new(id)).await;
        }
        let status = self.fake.image_status(image, false).await;
        let present = status.map_err(|e| self.forget_ambiguity(e))?.image;
        match self.sabotage {
            Sabotage::RemovalOfAbsentFails if present.is_none() => {
                Err(Error::new(Kind::NotFound, format!("remove {}: not found", image.image)))
            }
            Sabotage::RemovesEverything if present.is_some() => {
                for image in self.fake.list_images(None).await? {
                    self.fake.remove_image(&ImageSpec::new(image.id)).await?;
                }
                Ok(())
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
            Sabotage::TimeGoesBack => {
                info.image_filesystems[0].timestamp = self.time.fetch_sub(1, Ordering::Relaxed);
            }
            _ => {}
        }
        Ok(info)
    }
}
