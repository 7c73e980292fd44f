//! Pulls an image: reference, resolve, choose, assemble, commit. One job per image, credential and platform at a time;
//! callers that arrive while it runs join it. Imports start at `choose` with a file as their source, and share
//! everything after it. Called by the image service's calls.

pub(crate) mod assemble;
mod assembly;
pub(crate) mod choose;
pub(crate) mod deposit;
mod holding;
pub(crate) mod image;
mod join;
pub(crate) mod layer;
mod present;
pub(crate) mod stack;
mod wanted;

use std::collections::BTreeSet;
use std::sync::Arc;

use cri_api::{BeforeVisible, Error, LayerState, PullEvent, Result};
use oci::{Digest, Reference, RegistryAuth};
use signature::Signature;
use store::{CommitError, ImageCommit, ImageRecord, Lease};
use tokio_util::sync::CancellationToken;

use crate::background::BlockingDrop;
use crate::budgets::PullAccount;
use crate::budgets::SpaceRequirement;
use crate::error::{self, cancelled};
use crate::in_flight::{JobContext, PullKey, ReadyLayer};
use crate::origin::{Origin, Provenance};
use crate::parts::EngineParts;
use crate::progress::Hub;
use crate::signatures::{FinalCheck, evidence, recorded};
use crate::source::registry::{RegistrySource, open_repository};
use crate::source::stored::StoredFirst;
use crate::source::{RawDocument, Source};
use assembly::Assembly;
use choose::{Chosen, choose};
use holding::Holding;
use image::{Assembled, ImageLayer, Names};

/// How often a commit is tried, in addition to once for each layer, when other images take layers meanwhile.
const COMMIT_ATTEMPTS: usize = 4;

/// A pull of an image by name, before its start.
pub(crate) struct PullJob {
    pub(crate) parts: Arc<EngineParts>,
    /// In canonical form.
    pub(crate) reference: Reference,
    pub(crate) auth: Option<RegistryAuth>,
    pub(crate) before_visible: BeforeVisible,
}

/// Answer of the store to a commit.
type Committed = std::result::Result<ImageRecord, CommitError>;

impl PullJob {
    pub(crate) fn key(&self) -> PullKey {
        let platform = self.parts.options.platform.clone();
        PullKey::new(self.reference.clone(), self.auth.as_ref(), platform)
    }

    pub(crate) async fn run(self, context: JobContext) -> Result<Digest> {
        let name = self.reference.to_string();
        let result = self.work(&name, &context).await;
        if let Err(error) = &result {
            tracing::debug!(image = %name, %error, "pull failed");
        }
        result.map_err(|error| error::of_pull(&name, &error))
    }

    async fn work(self, name: &str, context: &JobContext) -> Result<Digest> {
        let Self { parts, reference, auth, before_visible } = self;
        // What is rejected by its name is not asked for.
        let guard = parts.policy.guard(Some(&reference)).await?;
        if parts.options.trust_present_digests
            && let Some(image) = present::by_digest(&parts, &reference).await?
        {
            return Ok(image);
        }
        context.hub.report(PullEvent::Resolving);
        let found = async {
            let repository =
                open_repository(&parts.content.background, &parts.budgets.client, &reference, auth.clone()).await?;
            let root = repository.resolve().await.map_err(|e| error::from_registry(&e))?;
            let root = RawDocument { bytes: root.bytes, media_type: root.media_type, digest: root.digest };
            let resolved = root.digest.clone();
            let origin = Origin::of_pull(&reference, auth.as_ref());
            let remote = Arc::new(RegistrySource::new(repository, origin));
            let source: Arc<dyn Source> = Arc::new(StoredFirst::new(&parts.content, remote));
            let chosen = choose(source.as_ref(), root, &parts.options, &parts.options.platform, name).await?;
            let signatures = match guard {
                Some(guard) => {
                    let digests = digests(&resolved, &chosen);
                    let kept = kept_signatures(&parts, &reference, &chosen.manifest.config.digest).await?;
                    let background = &parts.content.background;
                    guard.check_pull((background, &parts.budgets.client), auth, digests, kept).await?
                }
                None => Vec::new(),
            };
            Ok::<_, Error>((source, chosen, resolved, signatures))
        };
        let (source, chosen, resolved, signatures) = tokio::select! {
            biased;
            () = context.token.cancelled() => return Err(cancelled()),
            found = found => found?,
        };
        let names = match reference.digest() {
            Some(_) => Names { tag: None, repo_digest: Some(reference.to_string()) },
            None => Names {
                tag: Some(reference.to_string()),
                repo_digest: Some(reference.at_digest(resolved.clone()).to_string()),
            },
        };
        let image = Incoming {
            parts: &parts,
            source,
            chosen: &chosen,
            name,
            names,
            digests: digests(&resolved, &chosen),
            reference: Some(&reference),
            signatures,
            before_visible,
            hub: &context.hub,
            token: &context.token,
        };
        match &parts.options.runtime {
            Some(target) => {
                image.deposit(target, &resolved).await?;
                Ok(chosen.manifest.config.digest.clone())
            }
            None => Ok(image.bring(resolved).await?.id),
        }
    }
}

/// A chosen image on its way into the store, wherever it comes from.
pub(crate) struct Incoming<'a> {
    pub(crate) parts: &'a Arc<EngineParts>,
    pub(crate) source: Arc<dyn Source>,
    pub(crate) chosen: &'a Chosen,
    pub(crate) name: &'a str,
    pub(crate) names: Names,
    /// The name by which the policy decides; `None`: it has none.
    pub(crate) reference: Option<&'a Reference>,
    /// The digests by which it may have been signed.
    pub(crate) digests: Vec<Digest>,
    /// Those by which it met the policy's demands.
    pub(crate) signatures: Vec<Signature>,
    /// Work that must be done before anything is committed.
    pub(crate) before_visible: BeforeVisible,
    pub(crate) hub: &'a Hub,
    pub(crate) token: &'a CancellationToken,
}

impl Incoming<'_> {
    /// Fetches what is missing and commits. `resolved` is what the name stands for.
    pub(crate) async fn bring(self, resolved: Digest) -> Result<ImageRecord> {
        let Self { parts, chosen, name, hub, .. } = &self;
        let layers = chosen.manifest.layers.iter().map(|l| (l.digest.clone(), l.size)).collect();
        hub.report(PullEvent::Resolved { digest: resolved, layers });
        if let Some(image) = present::unchanged(parts, chosen, &self.names, &self.signatures).await? {
            choose::check_present(chosen, &image.config, &parts.options.platform, name)?;
            self.verify().await?;
            present::report_all_present(chosen, hub);
            return Ok(image);
        }
        for layer in &chosen.manifest.layers {
            hub.layer(&layer.digest, LayerState::Waiting);
        }
        let lease = Arc::new(parts.content.background.hold(parts.content.store.lease()));
        let holding = Holding { lease: Arc::clone(&lease), deposit: None };
        let mut alone = BTreeSet::new();
        let pull = parts.budgets.memory.pull();
        for attempt in 1.. {
            let assembly = self.assembly(&holding, &alone, pull);
            let (assembled, ()) = futures::try_join!(assembly.run(), self.before_visible.done())?;
            hub.report(PullEvent::Committing);
            let takes = assembled.layers.iter().map(ImageLayer::new_bytes).sum();
            match self.commit(&lease, assembled).await? {
                Ok(image) => return Ok(image),
                Err(CommitError::LayerTaken { diff_id, chain_id })
                    if attempt < COMMIT_ATTEMPTS + chosen.manifest.layers.len() =>
                {
                    tracing::info!(image = %name, %diff_id, "another image has taken a layer: unpack it again");
                    alone.insert(chain_id);
                }
                Err(error) => {
                    let error = error::from_commit(parts.content.store.root(), &error);
                    return Err(parts
                        .content
                        .with_space_requirement(error, SpaceRequirement { bytes: takes, minimum: takes, free: None })
                        .await);
                }
            }
        }
        unreachable!("the loop ends by returning")
    }

    /// The work of assembling the layers, where those in `alone` are fetched for this image itself.
    fn assembly<'b>(&'b self, holding: &'b Holding, alone: &'b BTreeSet<Digest>, pull: PullAccount) -> Assembly<'b> {
        Assembly {
            parts: self.parts,
            source: &self.source,
            holding,
            chosen: self.chosen,
            name: self.name,
            hub: self.hub,
            token: self.token,
            alone,
            pull,
            stacking: None,
        }
    }

    /// Asks the policy once more, as it is now.
    async fn verify(&self) -> Result<()> {
        self.final_check().run(&self.parts.content.background).await
    }

    fn final_check(&self) -> FinalCheck {
        self.parts.policy.final_check(self.reference.cloned(), self.digests.clone(), self.signatures.clone())
    }

    /// Commits on a blocking thread. Layers that do not become part of the image are gone when it answers.
    async fn commit(&self, lease: &Arc<BlockingDrop<Lease>>, image: Assembled) -> Result<Committed> {
        let Chosen { raw, indexes, .. } = self.chosen;
        let mut commit = ImageCommit {
            config: image.config.to_vec(),
            manifest: raw.bytes.to_vec(),
            manifest_media_type: raw.media_type.clone(),
            indexes: indexes.iter().map(|bytes| bytes.to_vec()).collect(),
            tag: self.names.tag.clone(),
            repo_digest: self.names.repo_digest.clone(),
            unverified_blobs: self.blobs_with_their_layers(&image, false).into_iter().map(|(blob, _)| blob).collect(),
            layers: image.layers.iter().filter_map(ImageLayer::source).collect(),
            blobs: image.layers.iter().filter_map(ImageLayer::blob).collect(),
            created_at_unix_nanos: (self.parts.options.clock)(),
            ..ImageCommit::default()
        };
        let (parts, lease, signatures) = (Arc::clone(self.parts), Arc::clone(lease), self.signatures.clone());
        let id = self.chosen.manifest.config.digest.clone();
        let (origin, blobs) = (self.source.origin().clone(), self.blobs_with_their_layers(&image, true));
        let check = self.final_check();
        self.parts
            .content
            .background
            .run(move || {
                let before = parts.content.store.image(&id).ok().flatten();
                commit.annotations = evidence::merged(before.as_ref(), &signatures);
                let provenance = before.as_ref().map(Provenance::of).unwrap_or_default();
                provenance.and(origin, blobs).write(&mut commit.annotations);
                // The policy of this moment decides, and not the one under which the pull began.
                let allowed = check.run_blocking();
                let result = allowed.map(|()| parts.content.store.commit_image(&lease, commit));
                if let Ok(Ok(image)) = &result {
                    parts.content.hints.add(image);
                    // Before the layers leave the table of those that wait for their commit.
                    parts.content.committed();
                }
                let ready = image.layers.into_iter().filter_map(|part| match part {
                    ImageLayer::New(ready) => Some(ready),
                    ImageLayer::Present(_) => None,
                });
                drop(ready.filter_map(ReadyLayer::into_last).collect::<Vec<_>>());
                result
            })
            .await
    }
}

impl Incoming<'_> {
    /// Returns the blobs that the manifest names, each with its layer's diff ID: the pairs in which the layer is known
    /// to be unpacked from that blob if `verified`, otherwise the pairs in which this is unknown.
    fn blobs_with_their_layers(&self, image: &Assembled, verified: bool) -> BTreeSet<(Digest, Digest)> {
        let known = &self.parts.content.hints;
        let blobs = self.chosen.manifest.layers.iter().map(|descriptor| &descriptor.digest).zip(&image.layers);
        let is_verified = |(blob, part): &(&Digest, &ImageLayer)| match part {
            ImageLayer::New(ready) => ready.blob_digest == **blob,
            ImageLayer::Present(layer) => known.is_made_of(layer.diff_id(), blob),
        };
        let wanted = blobs.filter(|pair| is_verified(pair) == verified);
        wanted.map(|(blob, part)| (blob.clone(), part.diff_id().clone())).collect()
    }
}

/// The digests by which an image may have been signed: that of what its name stands for, and that of its manifest.
pub(crate) fn digests(resolved: &Digest, chosen: &Chosen) -> Vec<Digest> {
    let mut digests = vec![resolved.clone()];
    if chosen.raw.digest != *resolved {
        digests.push(chosen.raw.digest.clone());
    }
    digests
}

/// Returns the signatures that are kept with an image.
async fn kept_signatures(parts: &EngineParts, image: &Reference, id: &Digest) -> Result<Vec<Signature>> {
    if let Some(target) = &parts.options.runtime {
        let record = target.store.record(&image.to_string()).await?;
        return Ok(record.map(|record| recorded::read(&record, id).signatures).unwrap_or_default());
    }
    let id = id.clone();
    let image = parts.content.on_store(move |store| store.image(&id)).await?;
    Ok(image.map(|image| evidence::of(&image)).unwrap_or_default())
}
