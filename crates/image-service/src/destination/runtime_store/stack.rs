//! [`Stack`]: puts the layers of an image into a runtime's store, from the lowest up, while others are being fetched. Layers are
//! fitted to the layers below them, made durable with one sync, then moved and committed one after the other.

use std::sync::Arc;
use std::time::Duration;

use cri_api::engine::runtime_store::{Deposit, LayerFacts, LowerLayer, OpenSlot, Slot, StackedLayer};
use cri_api::{Error, Kind, Result};
use oci::Digest;
use store::{Lower, Store};
use tokio::sync::Mutex;

use crate::content::Content;
use crate::destination::image::{ChainLink, NewImage, PresentLayer};
use crate::destination::{LayerEvent, LayerEvents, WriteError};
use crate::error;
use crate::in_flight::ReadyLayer;
use crate::origin::SharedContent;

/// A sync of at most so many bytes takes milliseconds.
const CHEAP_SYNC: u64 = 4 << 20;
/// Interval at which the store is asked whether a sync has ended.
const SYNC_POLL: Duration = Duration::from_millis(20);

type Written<T> = std::result::Result<T, WriteError>;

/// A layer that is to be put on the ones below it.
enum StackPiece {
    Present(PresentLayer),
    /// A new layer, with the store's mark of syncs from when it was unpacked.
    New(ReadyLayer, u64),
}

/// The layers of an image that are being put into a runtime's store.
pub(super) struct Stack<'a> {
    content: &'a Content,
    /// Held while layers are put into the runtime's store.
    database_turn: &'a Mutex<()>,
    deposit: &'a Arc<dyn Deposit>,
    image: &'a NewImage,
    chain: &'a [ChainLink],
    pieces: Vec<Option<StackPiece>>,
    /// Number of layers, from the lowest up, that the store has.
    done: usize,
    /// The files of these layers, the highest first, with the number of layers that they were read for.
    lower: Option<(usize, Vec<Lower>)>,
}

impl<'a> Stack<'a> {
    pub(super) fn new(
        (content, database_turn): (&'a Content, &'a Mutex<()>),
        deposit: &'a Arc<dyn Deposit>,
        image: &'a NewImage,
        chain: &'a [ChainLink],
        present: Vec<Option<PresentLayer>>,
    ) -> Self {
        let pieces = present.into_iter().map(|layer| layer.map(StackPiece::Present)).collect();
        Self { content, database_turn, deposit, image, chain, pieces, done: 0, lower: None }
    }

    /// Puts all layers into the store as they become ready. Returns false if the events end before all layers are ready.
    pub(super) async fn write(mut self, mut events: LayerEvents) -> Written<bool> {
        loop {
            let (count, sync) = self.next();
            if count > 0 {
                self.put_next(count, sync).await?;
            }
            if self.done == self.pieces.len() {
                return Ok(true);
            }
            // All layers that are ready by then are put together.
            let event = match tokio::time::timeout(SYNC_POLL, events.next()).await {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(false),
                // A sync may have ended.
                Err(_) => continue,
            };
            self.receive(event);
            while let Some(event) = events.try_next() {
                self.receive(event);
            }
        }
    }

    /// Returns how many layers to put into the store next, and whether their files must be synced for that. A sync
    /// while other layers are being written writes those as well and delays them: as long as layers are missing, only
    /// layers that are already durable are put, unless a sync costs next to nothing.
    fn next(&self) -> (usize, bool) {
        let ready = self.pieces[self.done..].iter().take_while(|piece| piece.is_some()).count();
        let store = &self.content.store;
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

    fn receive(&mut self, event: LayerEvent) {
        match event {
            LayerEvent::Planned { .. } => {}
            LayerEvent::Present { place, layer } => self.pieces[place] = Some(StackPiece::Present(layer)),
            // The pull refuses a layer with another diff ID than the config's.
            LayerEvent::Ready { place, layer } if layer.diff_id == self.chain[place].diff_id => {
                self.pieces[place] = Some(StackPiece::New(layer, self.content.store.sync_mark()));
            }
            LayerEvent::Ready { .. } => {}
        }
    }

    /// Puts the next layers into the store: fits them to the layers below, syncs once, then moves and commits one after the other.
    async fn put_next(&mut self, count: usize, sync: bool) -> Written<()> {
        // The layers of two pulls would only wait for each other, and one that both need is moved by one of them.
        let (content, database_turn) = (self.content, self.database_turn);
        let _turn = database_turn.lock().await;
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
        content.committed();
        Ok(())
    }

    async fn make_durable(&self) -> Result<()> {
        self.content.on_store(Store::make_durable).await
    }

    /// Gives the directories of a layer the attributes that they take over from the layers below.
    async fn fit(&mut self, place: usize) -> Written<()> {
        let Some(StackPiece::New(ready, _)) = &self.pieces[place] else { return Ok(()) };
        let layer = ready.layer();
        if place == 0 || layer.is_independent() {
            return Ok(());
        }
        let below = self.below(place).await?;
        let chain_id = self.chain[place].chain_id.clone();
        // A layer that was moved in the meantime may have been moved for this very chain.
        self.content.on_store(move |_| layer.fit_on(&chain_id, &below)).await?;
        Ok(())
    }

    /// Returns the files of the layers below a place, the highest first.
    async fn below(&mut self, place: usize) -> Written<Vec<Lower>> {
        let mut below = Vec::new();
        for next in (self.done..place).rev() {
            match &self.pieces[next] {
                Some(StackPiece::New(ready, _)) => match ready.layer().files() {
                    Some(files) => below.push(files),
                    None => return Err(self.taken(&self.chain[next].chain_id)),
                },
                Some(StackPiece::Present(PresentLayer::OtherChain { chain_id, .. })) => {
                    below.extend(self.lower_layers(chain_id).await?.into_iter().next());
                }
                // The store has it on this chain, and with it all layers below.
                Some(StackPiece::Present(_)) | None => {
                    below.extend(self.lower_layers(&self.chain[next].chain_id).await?);
                    return Ok(below);
                }
            }
        }
        if self.done > 0 {
            let lower = match self.lower.take() {
                Some((of, lower)) if of == self.done => lower,
                _ => self.lower_layers(&self.chain[self.done - 1].chain_id).await?,
            };
            below.extend_from_slice(&lower);
            self.lower = Some((self.done, lower));
        }
        Ok(below)
    }

    /// Returns the files of a chain in the store, the highest first.
    async fn lower_layers(&self, chain_id: &Digest) -> Result<Vec<Lower>> {
        let layers = self.deposit.lower_layers(chain_id).await?;
        Ok(layers.into_iter().map(to_lower).collect())
    }

    async fn put_one(&self, place: usize) -> Written<()> {
        let layer = stacked_layer(self.chain, place);
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
            tracing::debug!(%error, slot = slot.key, "a slot stays until the image is released");
        }
        put
    }

    /// Records the origin of a layer that another client has put into the store, if this pull has fetched the same layer: the next
    /// pull from this origin need not fetch it again.
    async fn record_origin(&self, place: usize, layer: StackedLayer<'_>) {
        let Some(StackPiece::New(ready, _)) = &self.pieces[place] else { return };
        let (blob, origin) = (Some(ready.blob_digest.clone()), Some(self.image.origin.to_string()));
        let facts = LayerFacts { blob, origin, is_independent: false };
        if let Err(error) = self.deposit.record_origin(layer, &facts).await {
            tracing::debug!(%error, layer = %layer.diff_id, "cannot record the origin: a later pull fetches the layer again");
        }
    }

    async fn fill(&self, place: usize, layer: StackedLayer<'_>, slot: &OpenSlot) -> Written<()> {
        let mut facts = LayerFacts { origin: Some(self.image.origin.to_string()), ..LayerFacts::default() };
        let has_files = match &self.pieces[place] {
            Some(StackPiece::New(ready, _)) => {
                facts.blob = Some(ready.blob_digest.clone());
                facts.is_independent = ready.layer().is_independent();
                self.hand_over(ready, slot).await?
            }
            _ => false,
        };
        if !has_files {
            // Another chain took the files, or has had them before: a link to them is enough.
            if !self.link(layer, slot).await? {
                return Err(self.taken(layer.chain_id));
            }
            facts.is_independent = true;
            if self.content.sharing == SharedContent::Verified {
                facts.blob = self.image.chosen.manifest.layers.get(place).map(|layer| layer.digest.clone());
            }
        }
        Ok(self.deposit.commit(slot, layer, &facts).await?)
    }

    /// Moves the files of a new layer into its slot. Returns false if another chain has taken them.
    async fn hand_over(&self, ready: &ReadyLayer, slot: &OpenSlot) -> Result<bool> {
        let (deposit, layer, slot) = (Arc::clone(self.deposit), ready.layer(), slot.clone());
        self.content.on_store(move |_| layer.hand_over(|files| deposit.place(files, &slot))).await
    }

    /// Links the files of the same layer on another chain. Returns false if there is none, or no link can be made.
    async fn link(&self, layer: StackedLayer<'_>, slot: &OpenSlot) -> Result<bool> {
        let Some(chain_id) = self.deposit.independent_layers().await?.remove(layer.diff_id) else { return Ok(false) };
        if !self.deposit.hold(&chain_id).await? {
            return Ok(false);
        }
        let Some(from) = self.lower_layers(&chain_id).await?.into_iter().next() else { return Ok(false) };
        let (deposit, slot) = (Arc::clone(self.deposit), slot.clone());
        let link = move |store: &Store| store.link_layer(&from, |files| deposit.place(files, &slot));
        self.content.on_store(link).await
    }

    /// Returns the error for a layer whose files another image has taken.
    fn taken(&self, chain_id: &Digest) -> WriteError {
        let name = &self.image.name;
        let message = format!("{name}: other images took the layer for the chain {chain_id} again and again");
        WriteError::LayerTaken { chain_id: chain_id.clone(), error: Error::new(Kind::Internal, message) }
    }
}

/// Returns the layer at this place of a chain.
pub(super) fn stacked_layer(chain: &[ChainLink], place: usize) -> StackedLayer<'_> {
    let parent = place.checked_sub(1).map(|below| &chain[below].chain_id);
    let ChainLink { diff_id, chain_id } = &chain[place];
    StackedLayer { diff_id, chain_id, parent }
}

fn to_lower(layer: LowerLayer) -> Lower {
    match layer {
        LowerLayer::Directory(path) => Lower::Directory(path),
        LowerLayer::ErofsFile(path) => Lower::Erofs(path),
    }
}
