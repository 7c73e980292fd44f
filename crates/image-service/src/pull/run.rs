//! [`Assembler::run`]: gets all layers of one manifest: those that are present, those that another pull is already fetching, and the
//! rest from the source. Layers that no image on this node ever had are fetched while the config is being fetched; the others
//! wait for the config, which shows whether they are present. Nothing is visible at the end. [`super::image_job`] commits the
//! result.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cri_api::{Error, Kind, LayerState, Result};
use futures::FutureExt as _;
use futures::future::{BoxFuture, Either};
use futures::stream::{FuturesUnordered, StreamExt as _};
use store::Unfinished;
use tokio_util::sync::CancellationToken;

use super::assembler::Assembler;
use super::blob::{BlobState, LayerBlob, WEIGHT, blobs_of, sort};
use super::plan::Plan;
use super::wait::{LayerOutcome, WaitResult};
use crate::budgets::{InsufficientSpace, SpaceClaim};
use crate::destination::LayerEvent;
use crate::destination::image::{Assembled, ImageLayer};
use crate::error::{self, cancelled, damaged};
use crate::in_flight::{LayerKey, ReadyLayer, UnresolvedPull};
use crate::source::resume;

/// The phase of an assembly.
enum Phase<'a> {
    /// The config is being fetched; only early layers may be fetched.
    Planning { plan: BoxFuture<'a, Result<Plan>>, early: EarlyFetch, _unresolved: Option<UnresolvedPull> },
    /// The config is known; all missing layers may be fetched.
    Fetching(Plan),
    /// The plan was taken: all layers are present or ready.
    Complete,
}

/// The rule for layers that are fetched before the config is known.
struct EarlyFetch {
    /// True if no other layer is in flight, so that none can be joined.
    is_alone: bool,
    /// True if all layers that seem to be missing fit on the disk.
    fits: bool,
}

/// The progress of an assembler.
struct Assembly<'a> {
    phase: Phase<'a>,
    blobs: Vec<LayerBlob>,
    /// Indexes of the queued blobs, in the order of fetching.
    queue: VecDeque<usize>,
    running: FuturesUnordered<BoxFuture<'static, WaitResult>>,
    claim: SpaceClaim,
    /// Weight of the running jobs that this pull has started.
    leading: usize,
}

/// The next event of an assembly.
enum Event {
    Planned(Plan),
    Layer(WaitResult),
    Complete(Plan),
}

impl Assembly<'_> {
    /// Waits for the next event.
    async fn next(&mut self, token: &CancellationToken) -> Result<Event> {
        if matches!(self.phase, Phase::Fetching(_))
            && self.queue.is_empty()
            && self.running.is_empty()
            && let Phase::Fetching(plan) = std::mem::replace(&mut self.phase, Phase::Complete)
        {
            return Ok(Event::Complete(plan));
        }
        let planned = match &mut self.phase {
            Phase::Planning { plan, .. } => Either::Left(plan),
            Phase::Fetching(_) | Phase::Complete => Either::Right(std::future::pending()),
        };
        tokio::select! {
            biased;
            () = token.cancelled() => Err(cancelled()),
            plan = planned => Ok(Event::Planned(plan?)),
            Some(result) = self.running.next() => Ok(Event::Layer(result)),
        }
    }

    fn plan(&self) -> Option<&Plan> {
        match &self.phase {
            Phase::Fetching(plan) => Some(plan),
            Phase::Planning { .. } | Phase::Complete => None,
        }
    }

    /// Queues a blob for another attempt, before all others.
    fn requeue(&mut self, n: usize) {
        self.blobs[n].state = BlobState::Queued;
        self.queue.push_front(n);
    }
}

impl Assembler<'_> {
    /// Gets all layers. After a failure, the layers that this pull alone wanted are removed before it returns.
    pub(super) async fn run(&self) -> Result<Assembled> {
        let mut assembly = self.begin().await?;
        let error = match self.drive(&mut assembly).await {
            Ok(plan) => match self.image_layers(&plan, &assembly.blobs) {
                Ok(layers) => return Ok(Assembled { config: plan.config, layers }),
                Err(error) => error,
            },
            Err(error) => self.parts.content.with_space_requirement(error, assembly.claim.requirement()).await,
        };
        self.abandon(assembly, &error).await;
        Err(error)
    }

    /// Plans the image in the background, and claims space for the layers that may be fetched early.
    async fn begin(&self) -> Result<Assembly<'_>> {
        let blobs = self.blobs(None);
        let mut queue = (0..blobs.len()).collect();
        sort(&blobs, &mut queue);
        // Another pull may already be fetching the same layer in a different compression, which only the config can show. If the
        // config is present, reading it first costs nothing.
        let mut early =
            EarlyFetch { is_alone: self.parts.in_flight.layers.len() == 0 && !self.has_config(), fits: false };
        let unresolved = blobs.iter().any(|blob| self.is_shareable(&early, blob));
        let unresolved = unresolved.then(|| self.parts.in_flight.by_diff_id.unresolved());
        let plan = self.plan(unresolved.is_none()).boxed();
        // If the layers that seem to be missing do not fit, nothing is fetched before the config shows which ones are.
        let mut claim = self.parts.budgets.space.claim();
        let missing = blobs.iter().filter(|blob| self.is_early(&early, blob));
        early.fits = self.claim(&mut claim, missing).await?.is_ok();
        let phase = Phase::Planning { plan, early, _unresolved: unresolved };
        Ok(Assembly { phase, blobs, queue, running: FuturesUnordered::new(), claim, leading: 0 })
    }

    async fn drive(&self, assembly: &mut Assembly<'_>) -> Result<Plan> {
        loop {
            self.start_queued(assembly);
            match assembly.next(self.token).await? {
                Event::Planned(plan) => self.enter_fetching(assembly, plan).await?,
                Event::Layer(result) => self.settle(assembly, result).await?,
                Event::Complete(plan) => return Ok(plan),
            }
        }
    }

    /// Starts the queued blobs that may be fetched now, within the limit of parallel layers.
    fn start_queued(&self, assembly: &mut Assembly<'_>) {
        let limit = self.parts.budgets.parallel_layers.saturating_mul(WEIGHT);
        let mut held_back = VecDeque::new();
        while assembly.leading < limit {
            let Some(n) = assembly.queue.pop_front() else { break };
            let blob = &assembly.blobs[n];
            // A superseded attempt may have provided the layer after all.
            if !matches!(blob.state, BlobState::Queued) {
                continue;
            }
            let may_start = match &assembly.phase {
                Phase::Planning { early, .. } => early.fits && self.is_early(early, blob),
                Phase::Fetching(_) | Phase::Complete => true,
            };
            if !may_start || assembly.leading + blob.weight() > limit {
                held_back.push_back(n);
                continue;
            }
            let attempt = assembly.blobs[n].begin();
            let (led, wait) = self.start((n, attempt), &assembly.blobs[n], assembly.plan());
            assembly.leading += if led { assembly.blobs[n].weight() } else { 0 };
            assembly.running.push(wait);
        }
        held_back.append(&mut assembly.queue);
        assembly.queue = held_back;
    }

    /// Returns true if a blob may be fetched before the config is known.
    fn is_early(&self, early: &EarlyFetch, blob: &LayerBlob) -> bool {
        self.parts.content.hints.diff_id(&blob.descriptor.digest).is_none() && self.is_shareable(early, blob)
    }

    /// Returns true if an early fetch cannot duplicate a fetch of the same layer: no other layer is in flight, or this very blob is.
    fn is_shareable(&self, early: &EarlyFetch, blob: &LayerBlob) -> bool {
        early.is_alone || self.jobs_like(&blob.key).next().is_some()
    }

    /// Applies the plan to the blobs, claims the space of all missing layers, and sends the plan and the ready layers to the writer.
    async fn enter_fetching(&self, assembly: &mut Assembly<'_>, plan: Plan) -> Result<()> {
        self.apply(assembly, &plan);
        let (config, chain, present) = (plan.config.clone(), plan.chain.clone(), plan.present.clone());
        // Ends the count of unresolved pulls as well.
        assembly.phase = Phase::Fetching(plan);
        let missing = |blob: &&LayerBlob| !blob.places.is_empty() && !self.is_provided_by_other(blob);
        if let Err(short) = self.claim(&mut assembly.claim, assembly.blobs.iter().filter(missing)).await? {
            return Err(short.into_error(self.parts.content.store.root()));
        }
        self.events.send(LayerEvent::Planned { config, chain, present });
        assembly.blobs.iter().for_each(|blob| self.send_ready(blob));
        Ok(())
    }

    /// Changes the blobs from all layers of the manifest to the missing layers of the plan.
    fn apply(&self, assembly: &mut Assembly<'_>, plan: &Plan) {
        for (descriptor, layer) in self.image.chosen.manifest.layers.iter().zip(&plan.present) {
            if layer.is_some() {
                self.hub.layer(&descriptor.digest, LayerState::Present);
            }
        }
        let Assembly { blobs, queue, .. } = assembly;
        let mut needed = BTreeSet::new();
        for wanted in self.blobs(Some(plan)) {
            let Some(n) = blobs.iter().position(|blob| blob.key == wanted.key) else {
                needed.insert(blobs.len());
                queue.push_back(blobs.len());
                blobs.push(wanted);
                continue;
            };
            needed.insert(n);
            (blobs[n].places, blobs[n].diff_id) = (wanted.places, wanted.diff_id);
            // Of two jobs for one layer, this one was started later.
            if matches!(blobs[n].state, BlobState::Fetching) && self.is_provided_by_other(&blobs[n]) {
                blobs[n].supersede();
                queue.push_back(n);
            }
        }
        for (n, blob) in blobs.iter_mut().enumerate().filter(|(n, _)| !needed.contains(n)) {
            tracing::trace!(layer = %blob.descriptor.digest, n, "the layer need not be fetched");
            blob.places.clear();
            blob.stop.cancel();
            // A layer that is unpacked already is removed at the end.
            if blob.ready().is_none() {
                blob.state = BlobState::Unneeded;
            }
        }
        queue.retain(|n| needed.contains(n));
        sort(blobs, queue);
    }

    /// Applies the result of waiting for a layer.
    async fn settle(&self, assembly: &mut Assembly<'_>, result: WaitResult) -> Result<()> {
        let WaitResult { blob: n, attempt, led, outcome } = result;
        let blob = &mut assembly.blobs[n];
        assembly.leading -= if led { blob.weight() } else { 0 };
        let digest = blob.descriptor.digest.clone();
        let is_current = blob.is_current(attempt);
        match outcome {
            LayerOutcome::Unpacked(layer) if blob.is_other_layer(&layer) => {
                tracing::debug!(layer = %digest, "another blob has another layer: fetch the own blob");
                blob.own_only = true;
            }
            LayerOutcome::Unpacked(layer) => {
                blob.state = BlobState::Ready(layer);
                self.check_size(assembly)?;
                self.check_entries(&assembly.blobs)?;
                if assembly.plan().is_some() {
                    self.send_ready(&assembly.blobs[n]);
                }
                return Ok(());
            }
            LayerOutcome::Committed => {
                let is_placed = is_current && led && self.place_committed(assembly, n).await?;
                self.check_size(assembly)?;
                if is_placed {
                    return Ok(());
                }
            }
            LayerOutcome::Unconfirmed => {
                tracing::debug!(layer = %digest, "registry does not confirm the shared layer: fetch it");
                blob.own_only = true;
            }
            LayerOutcome::Failed(_) if matches!(blob.state, BlobState::Unneeded) => {}
            LayerOutcome::Failed(error) if led || self.token.is_cancelled() || error::is_damaged_image(&error) => {
                return Err(error);
            }
            LayerOutcome::Failed(error) => {
                // The other pull may have failed because of its registry or credential: take over.
                tracing::debug!(%error, layer = %digest, "another pull's layer failed");
            }
            LayerOutcome::Stopped(_) | LayerOutcome::JobEnded => {}
        }
        if is_current {
            assembly.requeue(n);
        }
        Ok(())
    }

    /// Fills the places of a blob with the layers that another pull has committed. Returns false if they are missing again.
    async fn place_committed(&self, assembly: &mut Assembly<'_>, n: usize) -> Result<bool> {
        let Phase::Fetching(plan) = &mut assembly.phase else { return Ok(false) };
        let blob = &mut assembly.blobs[n];
        let present = self.writer.find_present(plan.links(&blob.places)).await?;
        if present.iter().any(Option::is_none) {
            return Ok(false);
        }
        for (place, layer) in std::mem::take(&mut blob.places).into_iter().zip(present) {
            if let Some(layer) = &layer {
                self.events.send(LayerEvent::Present { place, layer: layer.clone() });
            }
            plan.present[place] = layer;
        }
        blob.state = BlobState::Unneeded;
        self.parts.budgets.space.set_fetched(&blob.descriptor.digest, blob.descriptor.size);
        self.hub.layer(&blob.descriptor.digest, LayerState::Present);
        Ok(true)
    }

    fn send_ready(&self, blob: &LayerBlob) {
        let Some(layer) = blob.ready() else { return };
        for &place in &blob.places {
            self.events.send(LayerEvent::Ready { place, layer: layer.clone() });
        }
    }

    /// Stops all jobs after a failure, and removes the layers that no other pull wants, or leaves them for a later pull.
    async fn abandon(&self, assembly: Assembly<'_>, error: &Error) {
        // The space stays claimed until the layers are removed.
        let Assembly { blobs, mut running, claim: _claim, .. } = assembly;
        for blob in &blobs {
            blob.stop.cancel();
        }
        let ready = |blob: LayerBlob| match blob.state {
            BlobState::Ready(layer) => Some(layer),
            _ => None,
        };
        let mut ready: Vec<ReadyLayer> = blobs.into_iter().filter_map(ready).collect();
        while let Some(result) = running.next().await {
            if let LayerOutcome::Unpacked(layer) | LayerOutcome::Stopped(Some(layer)) = result.outcome {
                ready.push(layer);
            }
        }
        drop(running);
        if resume::is_interruption(error) {
            ready.iter().for_each(ReadyLayer::keep_for_later);
        }
        // Discard on a background thread, but finish before returning the error.
        let last: Vec<_> = ready.into_iter().filter_map(ReadyLayer::into_last).collect();
        self.parts.content.background.discard(last).await;
    }

    fn blobs(&self, plan: Option<&Plan>) -> Vec<LayerBlob> {
        let layers = &self.image.chosen.manifest.layers;
        blobs_of(layers, self.source.origin(), plan, |chain_id| self.exclusive.contains(chain_id))
    }

    /// Claims disk space for these blobs. The outer error is a failure to read the free space.
    async fn claim(
        &self,
        claim: &mut SpaceClaim,
        blobs: impl Iterator<Item = &LayerBlob>,
    ) -> Result<std::result::Result<(), InsufficientSpace>> {
        let wanted: BTreeMap<_, _> = blobs.map(|blob| (blob.descriptor.digest.clone(), blob.descriptor.size)).collect();
        if claim.covers(&wanted) {
            return Ok(Ok(()));
        }
        let content = &self.parts.content;
        let free = content.on_store(|store| store.room()).await?;
        let claimed = claim.set(wanted.clone(), free.unwrap_or(u64::MAX));
        if claimed.is_ok() || content.store.unfinished() == Unfinished::default() {
            return Ok(claimed);
        }
        // Leftovers can be fetched again, and must not prevent a pull.
        let free = content.on_store(|store| {
            let freed = store.drop_unfinished(None);
            tracing::info!(bytes = freed.freed_bytes, "not enough space: deleted the leftovers of interrupted pulls");
            store.room()
        });
        Ok(claim.set(wanted, free.await?.unwrap_or(u64::MAX)))
    }

    /// Returns true if a job for another blob provides the same layer. Otherwise the blob's own job is entered as the one that
    /// does.
    fn is_provided_by_other(&self, blob: &LayerBlob) -> bool {
        let Some(diff_id) = self.shared_diff_id(blob) else { return false };
        let in_flight = &self.parts.in_flight;
        let is_live = |key: &LayerKey| in_flight.layers.has(key) || in_flight.ready.find(key).is_some();
        in_flight.by_diff_id.retain(is_live);
        let join = |other: &LayerKey| (is_live(other) && self.may_join(other)).then_some(true);
        in_flight.by_diff_id.decide(diff_id, &blob.key, join, || false)
    }

    /// Refuses an image whose layers so far have more bytes than an image may have.
    fn check_size(&self, assembly: &Assembly<'_>) -> Result<()> {
        let present = assembly.plan().into_iter().flat_map(|plan| plan.present.iter().flatten());
        let present = present.map(|layer| layer.content_bytes());
        let new = assembly.blobs.iter().filter_map(|blob| {
            Some(blob.ready()?.layer().stats().content_bytes.saturating_mul(blob.places.len() as u64))
        });
        let (seen, limit) = (present.chain(new).fold(0, u64::saturating_add), self.parts.budgets.limits.image_bytes);
        if seen <= limit {
            return Ok(());
        }
        let name = &self.image.name;
        Err(error::invalid(format!(
            "{name}: the limit of bytes in all layers of an image is {limit}, and there are {seen} up to here"
        )))
    }

    /// Refuses an image whose layers, as far as they were unpacked for it, have more entries than all of its blobs may contain, or
    /// than two layers may have.
    fn check_entries(&self, blobs: &[LayerBlob]) -> Result<()> {
        let ready = blobs.iter().filter_map(LayerBlob::ready);
        let seen = ready.fold(0, |sum: u64, ready| sum.saturating_add(ready.layer().stats().entries));
        let layers = &self.image.chosen.manifest.layers;
        let compressed = layers.iter().fold(0, |sum: u64, layer| sum.saturating_add(layer.size));
        let of_two_layers = self.parts.options.store.limits.entries.saturating_mul(2);
        let limit = self.parts.budgets.limits.entries(compressed).min(of_two_layers);
        if seen <= limit {
            return Ok(());
        }
        let name = &self.image.name;
        Err(error::invalid(format!(
            "{name}: the limit of entries in all layers of an image with {compressed} compressed bytes is {limit}, and there \
             are {seen} up to here"
        )))
    }

    /// Returns the layers of the image, with every place filled and every diff ID as in the config.
    fn image_layers(&self, plan: &Plan, blobs: &[LayerBlob]) -> Result<Vec<ImageLayer>> {
        let present = plan.present.iter().map(|layer| layer.clone().map(ImageLayer::Present));
        let mut layers: Vec<Option<ImageLayer>> = present.collect();
        for (blob, ready) in blobs.iter().filter_map(|blob| Some((blob, blob.ready()?))) {
            for &place in &blob.places {
                let expected = &plan.chain[place].diff_id;
                if ready.diff_id != *expected {
                    return Err(damaged(format!(
                        "layer {}: diff id mismatch: the config of {} says {expected}, its content has {}",
                        blob.descriptor.digest, self.image.name, ready.diff_id
                    )));
                }
                layers[place] = Some(ImageLayer::New(ready.clone()));
            }
        }
        let missing = || Error::new(Kind::Internal, "a layer was not fetched: this is a fault of the program");
        layers.into_iter().map(|layer| layer.ok_or_else(missing)).collect()
    }
}
