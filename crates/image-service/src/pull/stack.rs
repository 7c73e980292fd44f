//! [`Stack`]: puts the layers of an image into a runtime's store, from the lowest up, while others are still being
//! fetched. The assembly reports them through [`Stacking`]. It knows neither registry nor records.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cri_api::engine::runtime_store::{Deposit, LayerFacts, LowerLayer, OpenSlot, Slot, StackedLayer};
use cri_api::{Error, Result};
use oci::Digest;
use store::Lower;
use tokio::sync::mpsc;

use super::image::PresentLayer;
use crate::error;
use crate::in_flight::ReadyLayer;
use crate::origin::SharedContent;
use crate::parts::EngineParts;

/// With no more bytes to write, a sync is a matter of milliseconds.
const CHEAP_SYNC: u64 = 4 << 20;
/// Pause between two looks whether a sync has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The sender by which an assembly reports its plan and its layers.
pub(crate) struct Stacking(mpsc::UnboundedSender<StackMessage>);

/// News of an assembly.
enum StackMessage {
    Plan { config: Bytes, diff_ids: Vec<Digest>, chain_ids: Vec<Digest>, present: Vec<Option<PresentLayer>> },
    Present { place: usize, layer: PresentLayer },
    Ready { place: usize, layer: ReadyLayer },
}

impl Stacking {
    /// Both ends: for the assembly, and for the stack.
    pub(crate) fn new() -> (Self, Listening) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), Listening(receiver))
    }

    pub(super) fn plan(
        &self,
        config: &Bytes,
        (diff_ids, chain_ids): (&[Digest], &[Digest]),
        present: &[Option<PresentLayer>],
    ) {
        let (config, present) = (config.clone(), present.to_vec());
        let (diff_ids, chain_ids) = (diff_ids.to_vec(), chain_ids.to_vec());
        self.send(StackMessage::Plan { config, diff_ids, chain_ids, present });
    }

    pub(super) fn present(&self, place: usize, layer: &PresentLayer) {
        self.send(StackMessage::Present { place, layer: layer.clone() });
    }

    pub(super) fn ready(&self, place: usize, layer: &ReadyLayer) {
        self.send(StackMessage::Ready { place, layer: layer.clone() });
    }

    /// A stack that does not listen any more has failed, and its result says why.
    fn send(&self, message: StackMessage) {
        let _ = self.0.send(message);
    }
}

/// End of the stack.
pub(crate) struct Listening(mpsc::UnboundedReceiver<StackMessage>);

/// Why the layers could not all be put there.
pub(crate) enum StackError {
    /// Another image has taken the layer for this chain: it has to be fetched for itself.
    Taken(Digest),
    Failed(Error),
}

impl From<Error> for StackError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

type Stacked<T> = std::result::Result<T, StackError>;

/// A layer that is to be put on the ones before it.
enum StackPiece {
    Present(PresentLayer),
    /// With a mark of the moment when it was whole.
    New(ReadyLayer, u64),
}

/// The layers of an image on their way into a runtime's store.
pub(crate) struct Stack<'a> {
    parts: &'a Arc<EngineParts>,
    deposit: &'a Arc<dyn Deposit>,
    /// The origin of the blobs, in the engine's words, and the blobs of the layers.
    origin: String,
    blobs: Vec<Digest>,
    diff_ids: Vec<Digest>,
    chain_ids: Vec<Digest>,
    pieces: Vec<Option<StackPiece>>,
    /// So many of the lowest layers are there.
    done: usize,
    /// The layers of those, as far as they were looked at: the highest first, and of how many.
    lower: Option<(usize, Vec<Lower>)>,
}

/// The config of the image, as the assembly found it.
pub(crate) struct Planned {
    pub(crate) config: Bytes,
    pub(crate) top: Option<Digest>,
}

impl<'a> Stack<'a> {
    /// Waits for the plan. `None`: the assembly ended before it, and reports the reason.
    pub(crate) async fn begin(
        parts: &'a Arc<EngineParts>,
        deposit: &'a Arc<dyn Deposit>,
        (origin, blobs): (String, Vec<Digest>),
        listening: &mut Listening,
    ) -> Option<(Self, Planned)> {
        let StackMessage::Plan { config, diff_ids, chain_ids, present } = listening.0.recv().await? else {
            return None;
        };
        let planned = Planned { config, top: chain_ids.last().cloned() };
        let pieces = present.into_iter().map(|layer| layer.map(StackPiece::Present)).collect();
        Some((Self { parts, deposit, origin, blobs, diff_ids, chain_ids, pieces, done: 0, lower: None }, planned))
    }

    /// Puts all layers into the store as they become ready. Returns false if the assembly ended before it reported all
    /// of them.
    pub(crate) async fn put(mut self, mut listening: Listening) -> Stacked<bool> {
        loop {
            let (count, sync) = self.next();
            if count > 0 {
                self.put_next(count, sync).await?;
            }
            if self.done == self.pieces.len() {
                return Ok(true);
            }
            // All that has come meanwhile goes there together.
            let message = match tokio::time::timeout(LOOK_AGAIN, listening.0.recv()).await {
                Ok(Some(message)) => message,
                Ok(None) => return Ok(false),
                // A sync may have ended.
                Err(_) => continue,
            };
            self.note(message);
            while let Ok(message) = listening.0.try_recv() {
                self.note(message);
            }
        }
    }

    /// Returns how many layers to put into the store next, and whether their files must be synced for that. A sync
    /// while other layers are being written writes those as well and delays them: as long as layers are missing, only
    /// layers that are already durable are put, unless a sync costs next to nothing.
    fn next(&self) -> (usize, bool) {
        let ready = self.pieces[self.done..].iter().take_while(|piece| piece.is_some()).count();
        let store = &self.parts.content.store;
        if self.done + ready == self.pieces.len() || store.unsynced_bytes().is_some_and(|bytes| bytes <= CHEAP_SYNC) {
            return (ready, true);
        }
        let is_durable = |piece: &&Option<StackPiece>| match piece {
            Some(StackPiece::New(ready, mark)) => ready.layer().is_independent() && store.is_synced_since(*mark),
            Some(StackPiece::Present(_)) => true,
            None => false,
        };
        (self.pieces[self.done..].iter().take_while(is_durable).count(), false)
    }

    fn note(&mut self, message: StackMessage) {
        match message {
            StackMessage::Plan { .. } => {}
            StackMessage::Present { place, layer } => self.pieces[place] = Some(StackPiece::Present(layer)),
            // What is something else than the config says, the assembly refuses.
            StackMessage::Ready { place, layer } if layer.diff_id == self.diff_ids[place] => {
                self.pieces[place] = Some(StackPiece::New(layer, self.parts.content.store.sync_mark()));
            }
            StackMessage::Ready { .. } => {}
        }
    }

    fn layer(&self, place: usize) -> StackedLayer<'_> {
        let parent = place.checked_sub(1).map(|below| &self.chain_ids[below]);
        StackedLayer { diff_id: &self.diff_ids[place], chain_id: &self.chain_ids[place], parent }
    }

    /// Puts the next few layers there: made fit for what is below them, synced once, then moved and committed one after the other.
    async fn put_next(&mut self, count: usize, sync: bool) -> Stacked<()> {
        // The runtime's database has one writer: layers of two pulls would only wait for each other, and one that both want is
        // moved by one of them.
        let parts = self.parts;
        let _turn = parts.runtime_writer.lock().await;
        let places = self.done..self.done + count;
        let new: Vec<usize> =
            places.clone().filter(|&place| matches!(self.pieces[place], Some(StackPiece::New(..)))).collect();
        for &place in &new {
            self.fit(place).await?;
        }
        if sync && !new.is_empty() {
            self.make_durable().await?;
        }
        for place in places {
            self.put_one(place).await?;
            self.done = place + 1;
        }
        parts.content.committed();
        Ok(())
    }

    async fn make_durable(&self) -> Result<()> {
        let store = self.parts.content.store.clone();
        let sync = move || store.make_durable().map_err(|e| error::from_store(store.root(), &e));
        self.parts.content.background.run(sync).await
    }

    /// Gives the layer's directories what they take over from the layers below.
    async fn fit(&mut self, place: usize) -> Stacked<()> {
        let Some(StackPiece::New(ready, _)) = &self.pieces[place] else { return Ok(()) };
        let layer = ready.layer();
        if place == 0 || layer.is_independent() {
            return Ok(());
        }
        let below = self.below(place).await?;
        let (store, chain_id) = (self.parts.content.store.clone(), self.chain_ids[place].clone());
        let fit = move || layer.fit_on(&chain_id, &below).map_err(|e| error::from_store(store.root(), &e));
        // One that is gone may be there for this very chain.
        self.parts.content.background.run(fit).await?;
        Ok(())
    }

    /// The layers below a place, the highest first: those that are on their way, and those that are there.
    async fn below(&mut self, place: usize) -> Stacked<Vec<Lower>> {
        let mut below = Vec::new();
        for on_its_way in (self.done..place).rev() {
            match &self.pieces[on_its_way] {
                Some(StackPiece::New(ready, _)) => match ready.layer().files() {
                    Some(files) => below.push(files),
                    None => return Err(StackError::Taken(self.chain_ids[on_its_way].clone())),
                },
                Some(StackPiece::Present(PresentLayer::OtherChain { chain_id, .. })) => {
                    below.extend(self.lower_layers(chain_id).await?.into_iter().next());
                }
                // It is there on this chain, and with it all below.
                Some(StackPiece::Present(_)) | None => {
                    below.extend(self.lower_layers(&self.chain_ids[on_its_way]).await?);
                    return Ok(below);
                }
            }
        }
        if self.done > 0 {
            let lower = match self.lower.take() {
                Some((of, lower)) if of == self.done => lower,
                _ => self.lower_layers(&self.chain_ids[self.done - 1]).await?,
            };
            below.extend_from_slice(&lower);
            self.lower = Some((self.done, lower));
        }
        Ok(below)
    }

    /// The layers of a chain that is there, the highest first.
    async fn lower_layers(&self, chain_id: &Digest) -> Result<Vec<Lower>> {
        let layers = self.deposit.lower_layers(chain_id).await?;
        Ok(layers.into_iter().map(to_lower).collect())
    }

    async fn put_one(&self, place: usize) -> Stacked<()> {
        let layer = self.layer(place);
        if let Some(StackPiece::Present(PresentLayer::Runtime { .. })) = &self.pieces[place] {
            return Ok(());
        }
        let slot = match self.deposit.open(layer).await? {
            Slot::Present => {
                self.record_origin(place, layer).await;
                return Ok(());
            }
            Slot::Open(slot) => slot,
            Slot::Unsupported(reason) => return Err(error::runtime_only(reason).into()),
        };
        let put = self.fill(place, layer, &slot).await;
        if put.is_err()
            && let Err(error) = self.deposit.abandon(&slot).await
        {
            tracing::debug!(%error, slot = slot.key, "a slot stays until the image is given up");
        }
        put
    }

    /// Records the origin of a layer that another client put there, if this pull fetched the same layer: the next pull from
    /// here need not fetch it again.
    async fn record_origin(&self, place: usize, layer: StackedLayer<'_>) {
        let Some(StackPiece::New(ready, _)) = &self.pieces[place] else { return };
        let (blob, origin) = (Some(ready.blob_digest.clone()), Some(self.origin.clone()));
        let facts = LayerFacts { blob, origin, is_independent: false };
        if let Err(error) = self.deposit.record_origin(layer, &facts).await {
            tracing::debug!(%error, layer = %layer.diff_id, "cannot record the origin: a later pull fetches the layer again");
        }
    }

    async fn fill(&self, place: usize, layer: StackedLayer<'_>, slot: &OpenSlot) -> Stacked<()> {
        let mut facts = LayerFacts { origin: Some(self.origin.clone()), ..LayerFacts::default() };
        let has_files = match &self.pieces[place] {
            Some(StackPiece::New(ready, _)) => {
                facts.blob = Some(ready.blob_digest.clone());
                facts.is_independent = ready.layer().is_independent();
                self.hand_over(ready, slot).await?
            }
            _ => false,
        };
        if !has_files {
            // Taken for another chain, or never fetched for this one: the same files lie there, and need only a link.
            if !self.link(layer, slot).await? {
                return Err(StackError::Taken(layer.chain_id.clone()));
            }
            facts.is_independent = true;
            if self.parts.content.sharing == SharedContent::Verified {
                facts.blob = self.blobs.get(place).cloned();
            }
        }
        Ok(self.deposit.commit(slot, layer, &facts).await?)
    }

    async fn hand_over(&self, ready: &ReadyLayer, slot: &OpenSlot) -> Result<bool> {
        let (deposit, layer, slot) = (Arc::clone(self.deposit), ready.layer(), slot.clone());
        let store = self.parts.content.store.clone();
        let hand_over = move || {
            let placed = layer.hand_over(|files| deposit.place(files, &slot));
            placed.map_err(|e| error::from_store(store.root(), &e))
        };
        self.parts.content.background.run(hand_over).await
    }

    /// Links the files of the same layer on another chain. Returns false if there is none, or no link can be made.
    async fn link(&self, layer: StackedLayer<'_>, slot: &OpenSlot) -> Result<bool> {
        let Some(chain_id) = self.deposit.independent_layers().await?.remove(layer.diff_id) else { return Ok(false) };
        if !self.deposit.hold(&chain_id).await? {
            return Ok(false);
        }
        let Some(from) = self.lower_layers(&chain_id).await?.into_iter().next() else { return Ok(false) };
        let (deposit, slot, store) = (Arc::clone(self.deposit), slot.clone(), self.parts.content.store.clone());
        let link = move || {
            let linked = store.link_layer(&from, |files| deposit.place(files, &slot));
            linked.map_err(|e| error::from_store(store.root(), &e))
        };
        self.parts.content.background.run(link).await
    }
}

fn to_lower(layer: LowerLayer) -> Lower {
    match layer {
        LowerLayer::Directory(path) => Lower::Directory(path),
        LowerLayer::ErofsFile(path) => Lower::Erofs(path),
    }
}
