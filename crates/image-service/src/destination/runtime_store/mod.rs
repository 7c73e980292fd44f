//! [`RuntimeStoreDestination`]: the store of a container runtime as a destination. Layers are unpacked next to the runtime's files
//! and put into its store while others are being fetched ([`stack`]); the records that make the image visible come last. A pull
//! ends when the runtime shows the image.

mod facts;
mod stack;
mod visible;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use cri_api::engine::runtime_store::{Deposit, Document, Documents, StackedLayer};
use cri_api::{Error, ImageSpec, Kind, Result};
use oci::{Digest, Platform, Reference};
use signature::Signature;
use store::Lease;
use tokio::sync::Mutex;

pub(crate) use facts::{chain_id, check_runtime_platform, lacks_layers};

use super::image::{Assembled, ChainLink, ImageLayer, NewImage, PresentLayer};
use super::{Destination, ImageWriter, LayerEvent, LayerEvents, WriteError};
use crate::background::BlockingDrop;
use crate::content::Content;
use crate::error;
use crate::in_flight::ReadyLayer;
use crate::options::RuntimeTarget;
use crate::origin::{Access, Origin, SharedContent};
use crate::signatures::{FinalCheck, recorded};
use crate::source::resume;
use facts::index_type;
use stack::{Stack, stacked_layer};

/// The store of a container runtime.
#[derive(Clone)]
pub(crate) struct RuntimeStoreDestination {
    content: Arc<Content>,
    target: RuntimeTarget,
    platform: Platform,
    /// Largest config that is read from the runtime, in bytes.
    max_config: u64,
    /// Held by the pull that writes layers: the runtime's database has one writer.
    database_turn: Arc<Mutex<()>>,
}

/// Writes one image into a runtime's store.
struct RuntimeStoreWriter {
    destination: RuntimeStoreDestination,
    image: Arc<NewImage>,
    /// The name that the image is pulled by.
    reference: Reference,
    deposit: Arc<dyn Deposit>,
    lease: Arc<BlockingDrop<Lease>>,
}

impl RuntimeStoreDestination {
    pub(crate) fn new(content: &Arc<Content>, target: RuntimeTarget, platform: Platform, max_config: u64) -> Self {
        Self { content: Arc::clone(content), target, platform, max_config, database_turn: Arc::default() }
    }

    /// Returns true if the image is present under all its names, with its evidence and its layers.
    async fn is_present(&self, image: &NewImage) -> Result<bool> {
        let (id, evidence) = (image.id().to_string(), evidence(image));
        let names = image.names.texts();
        for (name, evidence) in names.iter().map(|name| (name, &evidence)).chain([(&id, &None)]) {
            let Some(record) = self.target.store.record(name).await? else { return Ok(false) };
            if record.target != image.resolved || evidence.is_some() && record.evidence != *evidence {
                return Ok(false);
            }
        }
        let status = self.target.images.image_status(&ImageSpec::new(id), true).await?;
        Ok(status.image.is_some() && !lacks_layers(self.target.store.as_ref(), &status).await?)
    }

    /// Reads the diff IDs of the layers that the runtime has. None of these is fetched before the config is known.
    async fn read_hints(&self, image: &NewImage) {
        let blobs: Vec<Digest> = image.chosen.manifest.layers.iter().map(|layer| layer.digest.clone()).collect();
        match self.target.store.diff_ids(&blobs).await {
            Ok(found) => self.content.hints.set_layers(blobs, found),
            Err(error) => tracing::debug!(%error, "the runtime does not report its layers"),
        }
    }

    /// Leaves an image that was begun for a later pull.
    fn leave(&self, id: &str, image: &NewImage) {
        self.content.leftovers.add_interrupted(id.to_owned(), image.chosen.raw.digest.clone(), self.content.now());
    }
}

/// Returns the evidence of the policy's demands, for the records by name.
fn evidence(image: &NewImage) -> Option<String> {
    recorded::write(image.id(), &image.signed_digests(), &image.signatures)
}

#[async_trait]
impl Destination for RuntimeStoreDestination {
    async fn signatures(&self, name: &Reference, id: &Digest) -> Result<Vec<Signature>> {
        let record = self.target.store.record(&name.to_string()).await?;
        Ok(record.map(|record| recorded::read(&record, id).signatures).unwrap_or_default())
    }

    async fn find_unchanged(&self, image: &NewImage) -> Result<Option<Vec<u8>>> {
        if !self.is_present(image).await? {
            return Ok(None);
        }
        if image.chosen.platform_known {
            return Ok(Some(Vec::new()));
        }
        let limit = usize::try_from(self.max_config).unwrap_or(usize::MAX);
        self.target.store.read_blob(image.id(), limit).await
    }

    async fn accept_unchanged(&self, image: &NewImage) {
        // A pull that was interrupted after its records were written could not release its leftovers.
        self.content.leftovers.end_earlier(&self.target, &image.chosen.raw.digest).await;
    }

    async fn begin(&self, image: Arc<NewImage>) -> Result<Arc<dyn ImageWriter>> {
        let unnamed = || Error::new(Kind::Internal, "pull an image without a name: this is a fault of the program");
        let reference = image.reference.clone().ok_or_else(unnamed)?;
        // The runtime chooses the manifest of an index by itself; a single manifest it takes as it is.
        if !image.chosen.indexes.is_empty() {
            check_runtime_platform(&self.platform)?;
        }
        let id = self.target.store.new_id();
        let begin = self.target.store.begin(&id, self.target.workplace, &image.chosen.raw.digest);
        let (deposit, ()) = tokio::join!(begin, self.read_hints(&image));
        let deposit = match deposit {
            Ok(deposit) => deposit,
            Err(error) => {
                // The runtime may have begun it and failed before its answer.
                self.leave(&id, &image);
                return Err(error);
            }
        };
        let lease = Arc::new(self.content.background.hold(self.content.store.lease()));
        Ok(Arc::new(RuntimeStoreWriter { destination: self.clone(), image, reference, deposit, lease }))
    }
}

#[async_trait]
impl ImageWriter for RuntimeStoreWriter {
    fn lease(&self) -> &Arc<BlockingDrop<Lease>> {
        &self.lease
    }

    async fn find_present(&self, links: Vec<ChainLink>) -> Result<Vec<Option<PresentLayer>>> {
        let mut found = find_on_chain(self.deposit.as_ref(), &links).await?;
        if found.iter().any(Option::is_none) {
            let independent: BTreeMap<Digest, Digest> = self.deposit.independent_layers().await?;
            for (ChainLink { diff_id, .. }, found) in links.iter().zip(&mut found) {
                if found.is_none()
                    && let Some(chain_id) = independent.get(diff_id)
                    && self.deposit.hold(chain_id).await?
                {
                    *found = Some(PresentLayer::OtherChain { diff_id: diff_id.clone(), chain_id: chain_id.clone() });
                }
            }
        }
        Ok(found)
    }

    async fn access(&self, origin: &Origin, blob: &Digest, link: &ChainLink) -> Access {
        let RuntimeStoreDestination { content, target, .. } = &self.destination;
        if content.sharing == SharedContent::Open {
            return Access::Granted;
        }
        if content.keeps_blobs && !target.store.has_blob(blob).await.unwrap_or(false) {
            return Access::Denied;
        }
        let layer = StackedLayer { diff_id: &link.diff_id, chain_id: &link.chain_id, parent: None };
        match target.store.origin(layer, blob).await {
            Ok(recorded) => origin.access_to_recorded(recorded.as_deref()),
            Err(error) => {
                tracing::debug!(%error, layer = %link.diff_id, "origin of the layer is unknown: fetch it");
                Access::Denied
            }
        }
    }

    async fn write_layers(&self, mut events: LayerEvents) -> std::result::Result<(), WriteError> {
        let incomplete = || {
            let name = &self.image.name;
            let message =
                format!("{name}: not all layers were written to the runtime's store: this is a fault of the program");
            WriteError::Failed(Error::new(Kind::Internal, message))
        };
        // Without a plan the pull has failed, and returns its own error.
        let Some(LayerEvent::Planned { config, chain, present }) = events.next().await else {
            return Err(incomplete());
        };
        if let Some(why) = self.destination.target.store.undecodable(&config) {
            return Err(error::invalid(format!("the runtime cannot decode the image config: {why}")).into());
        }
        let top = chain.last().map(|link| link.chain_id.clone());
        let documents = async {
            self.deposit.write_documents(&self.documents(&config, top.as_ref())).await.map_err(WriteError::Failed)
        };
        let RuntimeStoreDestination { content, database_turn, .. } = &self.destination;
        let is_absent = |place: &usize| !matches!(present[*place], Some(PresentLayer::Runtime { .. }));
        let absent: Vec<_> = (0..chain.len()).filter(is_absent).map(|place| stacked_layer(&chain, place)).collect();
        let slots = async { self.deposit.open_early(&absent).await.map_err(WriteError::Failed) };
        let stack = Stack::new((content, database_turn), &self.deposit, &self.image, &chain, present);
        match futures::try_join!(documents, slots, stack.write(events))? {
            ((), (), true) => Ok(()),
            // An image without all of its layers could not start.
            ((), (), false) => Err(incomplete()),
        }
    }

    /// Writes the records, which make the image visible.
    async fn commit(&self, layers: Assembled, check: FinalCheck) -> std::result::Result<(), WriteError> {
        let background = &self.destination.content.background;
        for layer in &layers.layers {
            if let Some(blob) = layer.blob() {
                let opened = Arc::clone(&blob);
                let file = self.destination.content.on_store(move |_| opened.open()).await?;
                self.deposit.write_blob(blob.digest(), file, &self.reference).await?;
            }
        }
        // The policy of this moment decides, not the one from the start of the pull.
        check.run(background).await?;
        let documents = self.documents(&layers.config, None);
        // The ID first: no name leads to an image that the runtime cannot decode.
        let id = self.image.id().to_string();
        let names = self.image.names.texts();
        self.deposit.write_record(&documents, &id).await?;
        self.wait_until_visible().await?;
        for name in &names {
            self.deposit.write_record(&documents, name).await?;
        }
        let last = layers.layers.into_iter().filter_map(|layer| match layer {
            ImageLayer::New(ready) => ReadyLayer::into_last(ready),
            ImageLayer::Present(_) => None,
        });
        background.discard(last.collect::<Vec<_>>()).await;
        Ok(self.wait_for_names(&names).await?)
    }

    async fn finish(&self) {
        // The records keep the content of the image: nothing is collected.
        if let Err(error) = self.deposit.end().await {
            tracing::debug!(%error, id = self.deposit.id(), "leftovers of a pull stay until the next sweep");
            self.destination.leave(self.deposit.id(), &self.image);
        }
        self.destination.accept_unchanged(&self.image).await;
    }

    async fn fail(&self, why: &Error) {
        let RuntimeStoreDestination { content, target, .. } = &self.destination;
        if let Err(error) = self.deposit.undo_records().await {
            tracing::warn!(%error, image = self.image.name, "records of a failed pull stay until the next collection");
        }
        // A later pull need not fetch the layers that are already in the store.
        if resume::is_interruption(why) {
            self.destination.leave(self.deposit.id(), &self.image);
        } else {
            content.leftovers.end(target, self.deposit.id(), &self.image.chosen.raw.digest).await;
        }
    }
}

impl RuntimeStoreWriter {
    fn documents<'d>(&'d self, config: &'d [u8], top: Option<&'d Digest>) -> Documents<'d> {
        let chosen = &self.image.chosen;
        let manifest = Document { bytes: &chosen.raw.bytes, media_type: &chosen.raw.media_type };
        let index = |bytes: &'d bytes::Bytes| Document { bytes, media_type: index_type(bytes) };
        let layers = chosen.manifest.layers.iter().map(|layer| &layer.digest);
        let kept_blobs = if self.destination.content.keeps_blobs { layers.collect() } else { Vec::new() };
        Documents {
            indexes: chosen.indexes.iter().map(index).collect(),
            manifest,
            config,
            top,
            source: &self.reference,
            kept_blobs,
            evidence: evidence(&self.image),
        }
    }
}

/// Returns the layers whose snapshots the runtime has on these links, which are held from now on.
async fn find_on_chain(deposit: &dyn Deposit, links: &[ChainLink]) -> Result<Vec<Option<PresentLayer>>> {
    let present = |link: &ChainLink| Some(PresentLayer::Runtime { diff_id: link.diff_id.clone() });
    let mut found = vec![None; links.len()];
    if !is_whole_chain(links) {
        for (link, found) in links.iter().zip(&mut found) {
            if deposit.hold(&link.chain_id).await? {
                *found = present(link);
            }
        }
        return Ok(found);
    }
    // Below a snapshot are all others: this searches for the highest one.
    let (mut lowest_absent, mut length) = (0, links.len());
    while lowest_absent < length {
        // The lowest is asked for first: most images are present in whole or not at all.
        let at = if lowest_absent == 0 && length == links.len() { 0 } else { lowest_absent.midpoint(length) };
        if deposit.hold(&links[at].chain_id).await? { lowest_absent = at + 1 } else { length = at }
    }
    for (link, found) in links[..lowest_absent].iter().zip(&mut found) {
        *found = present(link);
    }
    Ok(found)
}

/// Returns true if the links are a stack from its lowest layer on.
fn is_whole_chain(links: &[ChainLink]) -> bool {
    let mut below = None;
    links.iter().all(|link| {
        let is_next = oci::chain_id(below, &link.diff_id) == link.chain_id;
        below = Some(&link.chain_id);
        is_next
    })
}
