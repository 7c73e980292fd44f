//! Assembles all layers of one manifest: which are present, which another pull is already fetching, and which have to
//! be fetched; and makes the checks that need the config. Layers that no image of this node ever had are fetched while
//! the config is still being fetched; the others wait for the config, which shows whether they are present. Nothing is
//! visible at the end. Called by pulls and imports, which commit the result.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use cri_api::{Error, LayerState, Result};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use oci::Digest;
use store::Unfinished;

use super::assembly::{Assembly, Came, Plan, Waited};
use super::choose::{check_layers, check_platform, parse_config};
use super::join::is_another;
use super::key::LayerKey;
use super::ready::{Assembled, Part, PresentLayer, ReadyLayer};
use super::wanted::{Blob, WEIGHT, in_order, sort, weight};
use crate::error::{self, cancelled, damaged};
use crate::resume;
use crate::room::{Claim, Short};

impl Assembly<'_> {
    /// Brings all layers together. When it fails, the layers that it alone wanted are gone before it answers.
    pub(crate) async fn run(&self) -> Result<Assembled> {
        let mut blobs = self.blobs(None);
        let mut running = FuturesUnordered::new();
        let mut claim = self.shared.room.claim();
        let result = self.drive(&mut blobs, &mut running, &mut claim).await;
        let failed = match result {
            Ok(plan) => match self.parts(&plan, &blobs) {
                Ok(layers) => return Ok(Assembled { config: plan.bytes, layers }),
                Err(error) => error,
            },
            Err(error) => self.shared.tell_need(error, claim.need()).await,
        };
        for blob in &blobs {
            blob.stop.cancel();
        }
        let mut ready: Vec<ReadyLayer> = blobs.into_iter().filter_map(|blob| blob.ready).collect();
        while let Some((_, _, came)) = running.next().await {
            if let Came::Answer(Ok(layer)) | Came::Stopped(Some(layer)) = came {
                ready.push(layer);
            }
        }
        drop(running);
        if resume::is_interruption(&failed) {
            ready.iter().for_each(ReadyLayer::stay);
        }
        // Discard on a background thread, but finish before returning the error.
        let left: Vec<_> = ready.into_iter().filter_map(ReadyLayer::into_last).collect();
        self.shared.background.discard(left).await;
        Err(failed)
    }

    async fn drive(
        &self,
        blobs: &mut Vec<Blob>,
        running: &mut FuturesUnordered<BoxFuture<'static, Waited>>,
        claim: &mut Claim,
    ) -> Result<Plan> {
        let mut plan: Option<Plan> = None;
        let mut pending = in_order(blobs);
        // Another pull may already be fetching the same layer in a different compression, which only the config can
        // show. If the config is already present, reading it first costs nothing.
        let alone = self.shared.layers.len() == 0 && !self.has_config();
        let early = |blob: &Blob| alone || self.jobs_like(&blob.key).next().is_some();
        let mut blind = blobs.iter().any(early).then(|| self.shared.coming.blind());
        let mut planning = self.plan(blind.is_none()).boxed().fuse();
        // If the layers that seem to be missing do not all fit, nothing is fetched before the config shows which ones
        // are.
        let at_once = |blob: &&Blob| self.shared.known.diff_id(&blob.descriptor.digest).is_none() && early(blob);
        let fits = self.claim(claim, blobs.iter().filter(at_once)).await?.is_ok();
        let most = self.shared.options.max_parallel_layers.saturating_mul(WEIGHT);
        let mut leading = 0_usize;
        loop {
            // Start what may start.
            let mut held_back = VecDeque::new();
            while leading < most {
                let Some(n) = pending.pop_front() else { break };
                // It came after all before it was stopped.
                if blobs[n].ready.is_some() {
                    continue;
                }
                let may = plan.is_some() || (fits && at_once(&&blobs[n]));
                if !may || leading + weight(&blobs[n]) > most {
                    held_back.push_back(n);
                    continue;
                }
                let (led, waiting) = self.start(n, &blobs[n], plan.as_ref());
                blobs[n].running = true;
                leading += if led { weight(&blobs[n]) } else { 0 };
                running.push(waiting);
            }
            held_back.append(&mut pending);
            pending = held_back;
            if let Some(plan) = plan.take_if(|_| pending.is_empty() && running.is_empty()) {
                return Ok(plan);
            }
            tokio::select! {
                biased;
                () = self.token.cancelled() => return Err(cancelled()),
                made = &mut planning, if plan.is_none() => {
                    let made = made?;
                    self.apply(&made, blobs, &mut pending);
                    drop(blind.take());
                    let missing = blobs.iter().filter(|blob| !blob.places.is_empty() && !self.comes_otherwise(blob));
                    if let Err(short) = self.claim(claim, missing).await? {
                        return Err(error::no_room(self.shared.store.root(), &short));
                    }
                    self.tell_plan(&made, blobs);
                    plan = Some(made);
                }
                Some((n, led, came)) = running.next() => {
                    leading -= if led { weight(&blobs[n]) } else { 0 };
                    // One that was stopped has perhaps been started again.
                    blobs[n].running &= matches!(came, Came::Stopped(_));
                    match came {
                        Came::Stopped(_) => {}
                        // The config has shown meanwhile that the layer is not wanted.
                        Came::Gone | Came::Refused if blobs[n].places.is_empty() => {}
                        Came::Gone => pending.push_front(n),
                        Came::Committed => {
                            let placed = match &mut plan {
                                Some(plan) if led => self.place_committed(plan, &mut blobs[n]).await?,
                                _ => false,
                            };
                            if !placed {
                                pending.push_front(n);
                            }
                            self.check_size(plan.as_ref(), blobs)?;
                        }
                        Came::Refused => {
                            tracing::debug!(layer = %blobs[n].descriptor.digest, "registry does not confirm the shared layer: fetch it");
                            blobs[n].own_only = true;
                            pending.push_front(n);
                        }
                        Came::Answer(Ok(ready)) if is_another(&blobs[n], &ready) => {
                            tracing::debug!(layer = %blobs[n].descriptor.digest, "another blob has another layer: fetch the own blob");
                            blobs[n].own_only = true;
                            pending.push_front(n);
                        }
                        Came::Answer(Ok(ready)) => {
                            blobs[n].ready = Some(ready);
                            self.check_size(plan.as_ref(), blobs)?;
                            self.check_entries(blobs)?;
                            if plan.is_some() {
                                self.tell_ready(&blobs[n]);
                            }
                        }
                        // The job of another pull failed, because of that pull's registry or credential: take over.
                        Came::Answer(Err(error))
                            if !led && !self.token.is_cancelled() && !error::is_damaged_image(&error) =>
                        {
                            tracing::debug!(%error, layer = %blobs[n].descriptor.digest, "another pull's layer failed");
                            pending.push_front(n);
                        }
                        Came::Answer(Err(error)) => return Err(error),
                    }
                }
            }
        }
    }

    /// Puts the layer that another pull has committed meanwhile into the places of its blob. Returns false if it is gone again.
    async fn place_committed(&self, plan: &mut Plan, blob: &mut Blob) -> Result<bool> {
        let present = self.holding.find_present(self.shared, plan.ids_of(&blob.places)).await?;
        if present.iter().any(Option::is_none) {
            return Ok(false);
        }
        for (place, layer) in std::mem::take(&mut blob.places).into_iter().zip(present) {
            if let (Some(stacking), Some(layer)) = (&self.stacking, &layer) {
                stacking.present(place, layer);
            }
            plan.present[place] = layer;
        }
        self.shared.room.done(&blob.descriptor.digest, blob.descriptor.size);
        self.hub.layer(&blob.descriptor.digest, LayerState::Present);
        Ok(true)
    }

    /// Reports the plan of the config, and the layers that were ready before it was known.
    fn tell_plan(&self, plan: &Plan, blobs: &[Blob]) {
        let Some(stacking) = &self.stacking else { return };
        stacking.plan(&plan.bytes, (&plan.diff_ids, &plan.chain_ids), &plan.present);
        for blob in blobs {
            self.tell_ready(blob);
        }
    }

    fn tell_ready(&self, blob: &Blob) {
        if let (Some(stacking), Some(ready)) = (&self.stacking, &blob.ready) {
            for &place in &blob.places {
                stacking.ready(place, ready);
            }
        }
    }

    /// Claims space on the disk for these blobs. The outer error is that of asking.
    async fn claim(
        &self,
        claim: &mut Claim,
        blobs: impl Iterator<Item = &Blob>,
    ) -> Result<std::result::Result<(), Short>> {
        let wanted = blobs.map(|blob| (blob.descriptor.digest.clone(), blob.descriptor.size)).collect();
        if claim.covers(&wanted) {
            return Ok(Ok(()));
        }
        let room = |drop_first: bool| {
            let store = self.shared.store.clone();
            self.shared.background.run(move || {
                if drop_first {
                    let freed = store.drop_unfinished(None);
                    tracing::info!(bytes = freed.freed_bytes, "not enough space: deleted what interrupted pulls left");
                }
                store.room().map_err(|e| error::from_store(store.root(), &e))
            })
        };
        let claimed = claim.set(wanted.clone(), room(false).await?.unwrap_or(u64::MAX));
        // Leftovers, which can be fetched again, must not prevent a fetch.
        if claimed.is_err() && self.shared.store.unfinished() != Unfinished::default() {
            return Ok(claim.set(wanted, room(true).await?.unwrap_or(u64::MAX)));
        }
        Ok(claimed)
    }

    /// Returns true if the config is on this machine.
    fn has_config(&self) -> bool {
        self.chosen.config.is_some() || self.shared.known.has_config(&self.chosen.manifest.config.digest)
    }

    /// Returns the config, fetched by this pull or by another one.
    async fn config(&self) -> Result<Bytes> {
        if let Some(bytes) = &self.chosen.config {
            return Ok(bytes.clone());
        }
        let descriptor = self.chosen.manifest.config.clone();
        let (source, key) = (Arc::clone(self.source), (self.source.origin().clone(), descriptor.digest.clone()));
        let most = self.shared.options.limits.config_bytes;
        let mut job = self.shared.configs.join(&key, |context| async move {
            tokio::select! {
                biased;
                () = context.token.cancelled() => Err(cancelled()),
                bytes = source.small_blob(&descriptor, most) => bytes,
            }
        });
        match job.wait().await {
            // Failed because of another pull's registry or credential.
            Err(_) if !job.led && !self.token.is_cancelled() => {
                self.source.small_blob(&self.chosen.manifest.config, most).await
            }
            result => result,
        }
    }

    /// The config, checked, and which of its layers are here. Where this pull has not begun to fetch, it lets those learn
    /// first what they are fetching that have.
    async fn plan(&self, others_first: bool) -> Result<Plan> {
        let (chosen, name) = (self.chosen, self.name);
        let bytes = self.config().await?;
        if others_first {
            self.shared.coming.all_see().await;
        }
        let config = parse_config(&bytes, &chosen.manifest.config)?;
        if !chosen.platform_known {
            check_platform(&config, &self.shared.options.platform, name)?;
        }
        check_layers(&config, &chosen.manifest, name)?;
        let diff_ids = config.rootfs.diff_ids;
        let chain_ids = chain_ids(&diff_ids);
        let stacked = diff_ids.iter().cloned().zip(chain_ids.iter().cloned()).collect();
        let commits = self.shared.commits.load(Ordering::Acquire);
        let mut present = self.holding.find_present(self.shared, stacked).await?;
        for (layer, chain_id) in present.iter_mut().zip(&chain_ids) {
            // No link to it could be made, or it was lost.
            if self.alone.contains(chain_id) && matches!(layer, Some(PresentLayer::Elsewhere { .. })) {
                *layer = None;
            }
        }
        self.leave_what_is_not_ours(&diff_ids, &chain_ids, &mut present).await;
        Ok(Plan { bytes, diff_ids, chain_ids, present, commits })
    }

    /// Brings what was started before the config was known in line with what the config says.
    fn apply(&self, plan: &Plan, blobs: &mut Vec<Blob>, pending: &mut VecDeque<usize>) {
        for (place, layer) in plan.present.iter().enumerate() {
            if layer.is_some() {
                self.hub.layer(&self.chosen.manifest.layers[place].digest, LayerState::Present);
            }
        }
        let wanted = self.blobs(Some(plan));
        let mut keep = BTreeSet::new();
        for blob in wanted {
            match blobs.iter().position(|b| b.key == blob.key) {
                Some(n) => {
                    keep.insert(n);
                    blobs[n].places = blob.places;
                    blobs[n].diff_id = blob.diff_id;
                    if blobs[n].running && self.comes_otherwise(&blobs[n]) {
                        // The later one of two is given up, which is this one.
                        std::mem::take(&mut blobs[n].stop).cancel();
                        blobs[n].running = false;
                        pending.push_back(n);
                    }
                }
                None => {
                    keep.insert(blobs.len());
                    pending.push_back(blobs.len());
                    blobs.push(blob);
                }
            }
        }
        for (n, blob) in blobs.iter_mut().enumerate() {
            if !keep.contains(&n) {
                blob.places.clear();
                blob.stop.cancel();
            }
        }
        pending.retain(|n| keep.contains(n));
        sort(blobs, pending);
    }

    /// The diff id by which a blob may come through another one. Where blobs are kept, it is the blob itself that is wanted.
    pub(super) fn shared_diff_id<'b>(&self, blob: &'b Blob) -> Option<&'b Digest> {
        let may = !blob.own_only && blob.key.only_for.is_none() && !self.shared.options.keep_blobs;
        blob.diff_id.as_ref().filter(|_| may)
    }

    /// Refuses an image whose layers, as far as they are here, have more in them than an image may.
    fn check_size(&self, plan: Option<&Plan>, blobs: &[Blob]) -> Result<()> {
        let here = plan.into_iter().flat_map(|plan| plan.present.iter().flatten()).map(PresentLayer::content_bytes);
        let new = blobs.iter().filter_map(|blob| {
            let bytes = blob.ready.as_ref()?.layer().stats().content_bytes;
            Some(bytes.saturating_mul(blob.places.len() as u64))
        });
        let (seen, most) = (here.chain(new).fold(0, u64::saturating_add), self.shared.options.limits.image_bytes);
        if seen <= most {
            return Ok(());
        }
        let name = self.name;
        Err(error::invalid(format!(
            "{name}: the limit of bytes in all layers of an image is {most}, and there are {seen} up to here"
        )))
    }

    /// Refuses an image whose layers, as far as they were unpacked for it, have more entries than all of its blobs may
    /// contain, or than two layers may have.
    fn check_entries(&self, blobs: &[Blob]) -> Result<()> {
        let options = &self.shared.options;
        let layers = blobs.iter().filter_map(|blob| blob.ready.as_ref());
        let seen = layers.fold(0, |sum: u64, ready| sum.saturating_add(ready.layer().stats().entries));
        let compressed = self.chosen.manifest.layers.iter().fold(0, |sum: u64, layer| sum.saturating_add(layer.size));
        let most = options.limits.entries(compressed).min(options.store.limits.entries.saturating_mul(2));
        if seen <= most {
            return Ok(());
        }
        Err(error::invalid(format!(
            "{}: the limit of entries in all layers of an image with {compressed} compressed bytes is {most}, and there \
             are {seen} up to here",
            self.name
        )))
    }

    /// Returns true if a job for another blob provides the same layer. Otherwise a running job of its own is noted as
    /// the one that does.
    fn comes_otherwise(&self, blob: &Blob) -> bool {
        let Some(diff_id) = self.shared_diff_id(blob) else { return false };
        let is_live = |key: &LayerKey| self.shared.layers.has(key) || self.shared.ready.find(key).is_some();
        self.shared.coming.forget(is_live);
        let joined = |other: &LayerKey| (is_live(other) && self.may_join(other)).then_some(true);
        self.shared.coming.decide(diff_id, &blob.key, joined, || false)
    }

    /// The stack, every place filled and every diff id as the config says.
    fn parts(&self, plan: &Plan, blobs: &[Blob]) -> Result<Vec<Part>> {
        let mut parts: Vec<Option<Part>> = plan.present.iter().map(|l| l.clone().map(Part::Present)).collect();
        for blob in blobs {
            let Some(ready) = &blob.ready else { continue };
            for &place in &blob.places {
                let expected = &plan.diff_ids[place];
                if ready.diff_id != *expected {
                    return Err(damaged(format!(
                        "layer {}: diff id mismatch: the config of {} says {expected}, its content has {}",
                        blob.descriptor.digest, self.name, ready.diff_id
                    )));
                }
                parts[place] = Some(Part::New(ready.clone()));
            }
        }
        let missing = || Error::new(cri_api::Kind::Internal, "a layer was forgotten: this is a fault of the program");
        parts.into_iter().map(|part| part.ok_or_else(missing)).collect()
    }
}

/// The chain id of every place.
pub(crate) fn chain_ids(diff_ids: &[Digest]) -> Vec<Digest> {
    let mut chain_ids: Vec<Digest> = Vec::with_capacity(diff_ids.len());
    for diff_id in diff_ids {
        chain_ids.push(oci::chain_id(chain_ids.last(), diff_id));
    }
    chain_ids
}
