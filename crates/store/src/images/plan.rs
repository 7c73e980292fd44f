//! Before a commit: what becomes of each layer of the new image. A layer that the store has is leased and used; a new
//! one gets a number, and learns whether its directories depend on the layers below. [`crate::images::commit`] does the rest.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use oci::{Digest, chain_id};

use crate::disk::layer::{LayerId, Shape};
use crate::disk::layout;
use crate::error::{CommitError, StoreError};
use crate::images::image_commit::LayerSource;
use crate::images::step::{Move, Step, has_implicit_root};
use crate::ingest::layer::{LayerPlace, UnpackedLayer};
use crate::io_error::is_of_the_medium;
use crate::maintenance::Lease;
use crate::records::entries::LayerEntry;
use crate::records::tables::Records;
use crate::store::Store;
use crate::unpack::{Attributes, PathLookup};
use crate::view::Deferred;

/// A layer of the image, on its way from source to step.
struct WantedLayer<'a> {
    diff_id: &'a Digest,
    /// The stack that ends with it.
    chain: &'a Digest,
    /// The steps for the layers below it.
    below: &'a [Step],
    lease: &'a Lease,
}

impl WantedLayer<'_> {
    fn taken(&self) -> CommitError {
        CommitError::LayerTaken { diff_id: self.diff_id.clone(), chain_id: self.chain.clone() }
    }
}

impl Store {
    /// Decides for each layer, lowest first.
    pub(crate) fn plan(
        &self,
        lease: &Lease,
        sources: &[LayerSource],
        next_layer: &mut u64,
    ) -> Result<Vec<Step>, CommitError> {
        let mut steps: Vec<Step> = Vec::with_capacity(sources.len());
        let mut parent: Option<Digest> = None;
        for source in sources {
            let chain = chain_id(parent.as_ref(), source.diff_id());
            let wanted = WantedLayer { diff_id: source.diff_id(), chain: &chain, below: &steps, lease };
            let step = match source {
                LayerSource::Present(layer) => self.plan_present(&wanted, layer.id, next_layer)?,
                LayerSource::New { layer, .. } => self.plan_new(&wanted, layer, next_layer)?,
            };
            steps.push(step);
            parent = Some(chain);
        }
        Ok(steps)
    }

    /// A layer that the caller found: it must still be there and be this one. If it does not fit the stack, a copy is
    /// made that does.
    fn plan_present(&self, wanted: &WantedLayer<'_>, id: LayerId, next_layer: &mut u64) -> Result<Step, CommitError> {
        let entry = {
            let mut leases = self.maintenance.lease_table();
            let entry = self.catalog.db.read(|records| records.layer(id))?;
            let there = |entry: &LayerEntry| entry.diff_id == *wanted.diff_id && self.layers.has_layer(id);
            let entry = entry.filter(there).ok_or_else(|| wanted.taken())?;
            wanted.lease.hold(&mut leases, id);
            entry
        };
        if self.fits(wanted, &entry)? {
            return Ok(Step::Use(id, entry.shape));
        }
        if let Some(step) = self.use_found(wanted)? {
            return Ok(step);
        }
        let copy = self.copy_layer(wanted, self.catalog.disk.layout.open_layer(id), entry.shape)?;
        self.plan_private(wanted, &copy, next_layer)
    }

    fn plan_new(
        &self,
        wanted: &WantedLayer<'_>,
        layer: &Arc<UnpackedLayer>,
        next_layer: &mut u64,
    ) -> Result<Step, CommitError> {
        if !Arc::ptr_eq(&layer.ingests, &self.ingests) {
            // Another store's.
            return Err(wanted.taken());
        }
        let chain_id = self.dependence(layer, wanted)?;
        // The same layer lower down in this very image.
        let twins = || wanted.below.iter().filter_map(Step::as_move).filter(|twin| twin.diff_id == *wanted.diff_id);
        if let Some(twin) = twins().find(|twin| twin.chain_id == chain_id) {
            return Ok(Step::Twin { id: twin.id, number: twin.number, shape: twin.layer.shape });
        }
        // Another pull may have committed it meanwhile.
        if let Some(step) = self.use_found(wanted)? {
            return Ok(step);
        }
        let directory = match layer.place() {
            LayerPlace::Private { number, patched_for } => {
                let free = !twins().any(|twin| Arc::ptr_eq(&twin.layer, layer));
                if free && (patched_for.is_none() || patched_for == chain_id) {
                    return self.plan_private(wanted, layer, next_layer);
                }
                layout::open_directory(&self.catalog.disk.layout.ingest, &number.to_string())
            }
            // For another stack.
            LayerPlace::Committed(id) => self.catalog.disk.layout.open_layer(id),
            LayerPlace::Lost => return Err(wanted.taken()),
        };
        let copy = self.copy_layer(wanted, directory, layer.shape)?;
        self.plan_private(wanted, &copy, next_layer)
    }

    /// Plans a layer on which no other pull has a claim.
    fn plan_private(
        &self,
        wanted: &WantedLayer<'_>,
        layer: &Arc<UnpackedLayer>,
        next_layer: &mut u64,
    ) -> Result<Step, CommitError> {
        let LayerPlace::Private { number, .. } = layer.place() else { return Err(wanted.taken()) };
        let chain_id = self.dependence(layer, wanted)?;
        let replaces = self.catalog.db.read(|records| {
            Ok::<_, StoreError>(match &chain_id {
                Some(chain_id) => records.layer_by_chain_id(chain_id)?,
                None => records.layer_by_diff_id(wanted.diff_id)?,
            })
        })?;
        let id = LayerId(*next_layer);
        *next_layer += 1;
        let (layer, diff_id) = (Arc::clone(layer), wanted.diff_id.clone());
        Ok(Step::Move(Move { id, number, layer, diff_id, chain_id, replaces }))
    }

    fn copy_layer(
        &self,
        wanted: &WantedLayer<'_>,
        directory: std::io::Result<OwnedFd>,
        shape: Shape,
    ) -> Result<Arc<UnpackedLayer>, CommitError> {
        let directory = match directory {
            Ok(directory) => directory,
            // A layer that was removed meanwhile cannot be copied from.
            Err(error) if is_of_the_medium(&error) => return Err(wanted.taken()),
            Err(error) => return Err(StoreError::io("open a layer in", &self.catalog.disk.layout.path, error).into()),
        };
        self.ingests
            .copy_of(&directory, shape, self.ingests.shape(), wanted.diff_id, &|| false)?
            .ok_or_else(|| wanted.taken())
    }

    /// Uses a layer that was committed since the caller searched for it.
    fn use_found(&self, wanted: &WantedLayer<'_>) -> Result<Option<Step>, StoreError> {
        let mut leases = self.maintenance.lease_table();
        let found = self.catalog.db.read(|records| self.layers.usable_layer(records, wanted.diff_id, wanted.chain))?;
        let Some((id, entry)) = found else { return Ok(None) };
        if !self.fits(wanted, &entry)? {
            return Ok(None);
        }
        wanted.lease.hold(&mut leases, id);
        Ok(Some(Step::Use(id, entry.shape)))
    }

    /// Returns true if an existing layer is right for this stack.
    fn fits(&self, wanted: &WantedLayer<'_>, entry: &LayerEntry) -> Result<bool, StoreError> {
        match &entry.chain_id {
            Some(made_for) => Ok(made_for == wanted.chain),
            None => Ok(!entry.implicit_root || self.is_on_plain_root(wanted.below)?),
        }
    }

    /// The stack to which the layer will belong, if to one.
    fn dependence(&self, layer: &UnpackedLayer, wanted: &WantedLayer<'_>) -> Result<Option<Digest>, StoreError> {
        Ok(self.depends_on_lower(layer, wanted.below)?.then(|| wanted.chain.clone()))
    }

    /// Returns true if the layer's directories depend on what is below: it has paths whose parents it does not have itself. A
    /// root without an entry counts only when the root below is not a plain one.
    fn depends_on_lower(&self, layer: &UnpackedLayer, below: &[Step]) -> Result<bool, StoreError> {
        match layer.outcome.implicit_dirs.as_slice() {
            [] => Ok(false),
            [only] if only.is_empty() => Ok(!self.is_on_plain_root(below)?),
            _ => Ok(true),
        }
    }

    /// Returns true if the root below is as a root is without a layer below.
    fn is_on_plain_root(&self, below: &[Step]) -> Result<bool, StoreError> {
        let Some((step, lower)) = below.split_last() else { return Ok(true) };
        // A root that it is yet to take over is not on the disk: what it takes over is.
        match step.as_move() {
            Some(Move { layer, chain_id: Some(_), .. }) if has_implicit_root(layer) => self.is_on_plain_root(lower),
            _ => self.has_plain_root(step),
        }
    }

    fn has_plain_root(&self, step: &Step) -> Result<bool, StoreError> {
        let directory = self.open_step(step)?;
        let failed = |source| StoreError::io("look at", self.step_path(step), source);
        match step.shape().find(directory.as_fd(), b"").map_err(failed)? {
            PathLookup::Here(mut attributes) => {
                if let Some(deferred) =
                    step.shape().deferred(directory.as_fd(), self.layers.privileged).map_err(failed)?
                {
                    deferred.complete(b"", &mut attributes);
                }
                Ok(attributes.is_plain(0, 0))
            }
            PathLookup::Hidden | PathLookup::Absent => Ok(false),
        }
    }

    /// Step 1. Lower layers first, since an upper one may take from them what they have just got.
    pub(crate) fn patch_implicit(&self, steps: &[Step]) -> Result<(), StoreError> {
        let mut open = OpenedSteps { store: self, steps, directories: BTreeMap::new() };
        for (at, step) in steps.iter().enumerate() {
            let Step::Move(Move { layer, chain_id: Some(chain_id), .. }) = step else { continue };
            let own = self.open_step(step)?;
            layer.note_patch(chain_id);
            let below = RefCell::new(&mut open);
            let below = |path: &[u8]| below.borrow_mut().below(at, path);
            let (bytes, inodes) =
                layer.shape.patch(own.as_fd(), &layer.outcome.implicit_dirs, &below, self.layers.privileged).map_err(
                    |source| StoreError::io("set the attributes of directories in", self.step_path(step), source),
                )?;
            layer.grow(bytes, inodes);
        }
        Ok(())
    }

    /// When everything is written and has its place: what new layers take.
    pub(crate) fn measure(&self, moves: &[&Move]) -> Result<(), StoreError> {
        for Move { layer, id, .. } in moves {
            let failed = |operation| {
                move |source: io::Error| StoreError::io(operation, self.catalog.disk.layout.layer_path(*id), source)
            };
            let directory = self.catalog.disk.layout.open_layer(*id).map_err(failed("open"))?;
            layer.measure(directory.as_fd()).map_err(failed("look at"))?;
        }
        Ok(())
    }

    fn step_path(&self, step: &Step) -> std::path::PathBuf {
        match step {
            Step::Use(id, _) => self.catalog.disk.layout.layer_path(*id),
            Step::Move(Move { number, .. }) | Step::Twin { number, .. } => {
                self.catalog.disk.layout.ingest_path(*number)
            }
        }
    }

    /// The layer's own directory.
    fn open_step(&self, step: &Step) -> Result<OwnedFd, StoreError> {
        let directory = match step {
            Step::Use(id, _) => self.catalog.disk.layout.open_layer(*id),
            Step::Move(Move { number, .. }) | Step::Twin { number, .. } => {
                layout::open_directory(&self.catalog.disk.layout.ingest, &number.to_string())
            }
        };
        directory.map_err(|source| StoreError::io("open", self.step_path(step), source))
    }
}

/// The layers of a stack, opened at the first lookup, and not too many at a time.
struct OpenedSteps<'a> {
    store: &'a Store,
    steps: &'a [Step],
    directories: BTreeMap<usize, (OwnedFd, Option<Deferred>)>,
}

impl OpenedSteps<'_> {
    const MOST: usize = 128;

    /// Looks up a path in the layers below the layer `at`.
    fn below(&mut self, at: usize, path: &[u8]) -> std::io::Result<Option<Attributes>> {
        for (lower, step) in self.steps[..at].iter().enumerate().rev() {
            if !self.directories.contains_key(&lower) {
                if self.directories.len() >= Self::MOST {
                    self.directories.clear();
                }
                let directory = self.store.open_step(step).map_err(|error| error.as_io())?;
                let deferred = step.shape().deferred(directory.as_fd(), self.store.layers.privileged)?;
                self.directories.insert(lower, (directory, deferred));
            }
            let (directory, deferred) = &self.directories[&lower];
            match step.shape().find(directory.as_fd(), path)? {
                PathLookup::Here(mut attributes) => {
                    if let Some(deferred) = deferred {
                        deferred.complete(path, &mut attributes);
                    }
                    return Ok(Some(attributes));
                }
                PathLookup::Hidden => return Ok(None),
                PathLookup::Absent => {}
            }
        }
        Ok(None)
    }
}
