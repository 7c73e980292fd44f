//! [`ImageJob`]: gets one image, from its name or, for imports, from its chosen manifest, until it is visible in the engine's
//! destination. An explicit state machine: each step returns the next state.

use std::collections::BTreeSet;
use std::sync::Arc;

use cri_api::{BeforeVisible, LayerState, PullEvent, Result};
use oci::{Digest, Reference, RegistryAuth};
use tokio_util::sync::CancellationToken;

use super::assembler::Assembler;
use super::choose::{check_present, choose};
use super::present;
use crate::budgets::PullAccount;
use crate::destination::image::{Assembled, ChosenManifest, Names, NewImage};
use crate::destination::{ImageWriter, WriteError, layer_events};
use crate::error::{self, cancelled};
use crate::origin::Origin;
use crate::parts::EngineParts;
use crate::progress::Hub;
use crate::signatures::FinalCheck;
use crate::source::registry::{RegistrySource, open_repository};
use crate::source::stored::StoredFirst;
use crate::source::{RawDocument, Source};

/// Number of times that an image is assembled, in addition to once for each layer, if other images take its layers.
const COMMIT_ATTEMPTS: usize = 4;

/// A job that gets one image.
pub(crate) struct ImageJob<'a> {
    pub(crate) parts: &'a Arc<EngineParts>,
    /// Work that must be done before anything is committed.
    pub(crate) before_visible: BeforeVisible,
    pub(crate) hub: &'a Hub,
    pub(crate) token: &'a CancellationToken,
}

/// The state of an image job.
pub(crate) enum ImageState {
    /// Only the name is known, in canonical form.
    Named { reference: Reference, auth: Option<RegistryAuth> },
    /// The manifest is chosen, and the signature policy accepts it.
    Chosen { source: Arc<dyn Source>, image: Arc<NewImage> },
    /// The destination lacks a part of the image, whose layers are being fetched.
    Fetching(ImageFetch),
    /// All layers are present or ready.
    Committing(ImageFetch, Assembled),
    /// The destination has the image with this ID.
    Complete(Digest),
}

/// The fetch of an image into a destination.
pub(crate) struct ImageFetch {
    source: Arc<dyn Source>,
    image: Arc<NewImage>,
    writer: Arc<dyn ImageWriter>,
    account: PullAccount,
    /// Chains for which a layer must be unpacked alone, since other images took their layers.
    exclusive: BTreeSet<Digest>,
    attempt: usize,
}

impl ImageState {
    fn writer(&self) -> Option<&Arc<dyn ImageWriter>> {
        match self {
            Self::Fetching(fetch) | Self::Committing(fetch, _) => Some(&fetch.writer),
            Self::Named { .. } | Self::Chosen { .. } | Self::Complete(_) => None,
        }
    }
}

impl ImageJob<'_> {
    /// Runs the job from this state to its end, and returns the image ID.
    pub(crate) async fn run(&self, mut state: ImageState) -> Result<Digest> {
        loop {
            let writer = state.writer().cloned();
            match (self.step(state).await, writer) {
                (Ok(ImageState::Complete(id)), writer) => {
                    if let Some(writer) = writer {
                        writer.finish().await;
                    }
                    return Ok(id);
                }
                (Ok(next), _) => state = next,
                (Err(error), writer) => {
                    if let Some(writer) = writer {
                        writer.fail(&error).await;
                    }
                    return Err(error);
                }
            }
        }
    }

    async fn step(&self, state: ImageState) -> Result<ImageState> {
        match state {
            ImageState::Named { reference, auth } => self.resolve(reference, auth).await,
            ImageState::Chosen { source, image } => self.begin(source, image).await,
            ImageState::Fetching(fetch) => self.fetch(fetch).await,
            ImageState::Committing(fetch, layers) => self.commit(fetch, layers).await,
            complete @ ImageState::Complete(_) => Ok(complete),
        }
    }

    /// Resolves the name, and chooses a manifest that the signature policy accepts.
    async fn resolve(&self, reference: Reference, auth: Option<RegistryAuth>) -> Result<ImageState> {
        let parts = self.parts;
        // An image that the policy rejects by its name is not requested.
        let guard = parts.policy.guard(Some(&reference)).await?;
        if parts.options.trust_present_digests
            && let Some(id) = present::by_digest(parts, &reference).await?
        {
            return Ok(ImageState::Complete(id));
        }
        self.hub.report(PullEvent::Resolving);
        let name = reference.to_string();
        let (background, client) = (&parts.content.background, &parts.budgets.client);
        let choose = async {
            let repository = open_repository(background, client, &reference, auth.clone()).await?;
            let root = repository.resolve().await.map_err(|e| error::from_registry(&e))?;
            let root = RawDocument { bytes: root.bytes, media_type: root.media_type, digest: root.digest };
            let resolved = root.digest.clone();
            let origin = Origin::of_pull(&reference, auth.as_ref());
            let registry = Arc::new(RegistrySource::new(repository, origin));
            let source: Arc<dyn Source> = Arc::new(StoredFirst::new(&parts.content, registry));
            let chosen = choose(source.as_ref(), root, &parts.options, &parts.options.platform, &name).await?;
            let signatures = match guard {
                Some(guard) => {
                    let kept = parts.destination.signatures(&reference, chosen.id()).await?;
                    let digests = chosen.signed_digests(&resolved);
                    guard.check_pull((background, client), auth, digests, kept).await?
                }
                None => Vec::new(),
            };
            Ok((source, chosen, resolved, signatures))
        };
        let (source, chosen, resolved, signatures) = tokio::select! {
            biased;
            () = self.token.cancelled() => return Err(cancelled()),
            chosen = choose => chosen?,
        };
        let image = NewImage {
            chosen: Arc::new(chosen),
            name,
            names: Names::of_pull(&reference, &resolved),
            reference: Some(reference),
            resolved,
            signatures,
            origin: source.origin().clone(),
        };
        Ok(ImageState::Chosen { source, image: Arc::new(image) })
    }

    /// Accepts the image if a pull would change nothing; otherwise begins to write it.
    async fn begin(&self, source: Arc<dyn Source>, image: Arc<NewImage>) -> Result<ImageState> {
        let (parts, destination) = (self.parts, &self.parts.destination);
        let layers = &image.chosen.manifest.layers;
        let sizes = layers.iter().map(|layer| (layer.digest.clone(), layer.size)).collect();
        self.hub.report(PullEvent::Resolved { digest: image.resolved.clone(), layers: sizes });
        if let Some(config) = destination.find_unchanged(&image).await? {
            check_present(&image.chosen, &config, &parts.options.platform, &image.name)?;
            self.final_check(&image).run(&parts.content.background).await?;
            destination.accept_unchanged(&image).await;
            self.report_layers(&image.chosen, LayerState::Present);
            return Ok(ImageState::Complete(image.id().clone()));
        }
        self.report_layers(&image.chosen, LayerState::Waiting);
        let writer = destination.begin(Arc::clone(&image)).await?;
        let account = parts.budgets.memory.pull();
        let exclusive = BTreeSet::new();
        Ok(ImageState::Fetching(ImageFetch { source, image, writer, account, exclusive, attempt: 1 }))
    }

    fn report_sources(&self, source: &dyn Source) {
        let sources = source.received();
        if !sources.is_empty() {
            self.hub.report(PullEvent::Sources { sources });
        }
    }

    /// Gets all layers, while the writer writes those that are ready.
    async fn fetch(&self, fetch: ImageFetch) -> Result<ImageState> {
        let (sender, events) = layer_events();
        let assembler = Assembler {
            parts: self.parts,
            source: &fetch.source,
            writer: &fetch.writer,
            image: &fetch.image,
            hub: self.hub,
            token: self.token,
            exclusive: &fetch.exclusive,
            account: fetch.account,
            events: sender,
        };
        let assemble = async {
            let layers = assembler.run().await;
            // Ends the events.
            drop(assembler);
            layers.map_err(WriteError::Failed)
        };
        let before_visible = async { self.before_visible.done().await.map_err(WriteError::Failed) };
        let written = futures::try_join!(assemble, before_visible, fetch.writer.write_layers(events));
        self.report_sources(&*fetch.source);
        match written {
            Ok((layers, (), ())) => {
                self.hub.report(PullEvent::Committing);
                Ok(ImageState::Committing(fetch, layers))
            }
            Err(error) => fetch.retry(error),
        }
    }

    /// Makes the image visible.
    async fn commit(&self, fetch: ImageFetch, layers: Assembled) -> Result<ImageState> {
        let check = self.final_check(&fetch.image);
        match fetch.writer.commit(layers, check).await {
            Ok(()) => Ok(ImageState::Complete(fetch.image.id().clone())),
            Err(error) => fetch.retry(error),
        }
    }

    fn final_check(&self, image: &NewImage) -> FinalCheck {
        self.parts.policy.final_check(image.reference.clone(), image.signed_digests(), image.signatures.clone())
    }

    fn report_layers(&self, chosen: &ChosenManifest, state: LayerState) {
        for layer in &chosen.manifest.layers {
            self.hub.layer(&layer.digest, state);
        }
    }
}

impl ImageFetch {
    /// Fetches a layer that another image has taken for this image alone, unless that has happened too often.
    fn retry(mut self, error: WriteError) -> Result<ImageState> {
        match error {
            WriteError::LayerTaken { chain_id, .. }
                if self.attempt < COMMIT_ATTEMPTS + self.image.chosen.manifest.layers.len() =>
            {
                tracing::info!(image = self.image.name, %chain_id, "another image has taken a layer: unpack it again");
                self.exclusive.insert(chain_id);
                self.attempt += 1;
                Ok(ImageState::Fetching(self))
            }
            WriteError::LayerTaken { error, .. } | WriteError::Failed(error) => Err(error),
        }
    }
}
