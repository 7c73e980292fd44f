//! Before a commit: what becomes of each layer of the new image. A layer that the store has is leased and used; a new
//! one gets a number, and learns whether its directories depend on the layers below. [`crate::commit`] does the rest.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use oci::{Digest, chain_id};

use crate::commit::LayerSource;
use crate::db::Records;
use crate::error::{CommitError, StoreError};
use crate::ingest::{Place, UnpackedLayer};
use crate::layout::{self, FS};
use crate::lease::Lease;
use crate::open::Inner;
use crate::records::{LayerEntry, LayerId};
use crate::unpack;

/// What becomes of one layer.
pub(crate) enum Step {
    /// The store has it.
    Use(LayerId),
    /// It gets this number.
    Move(Move),
}

impl Step {
    pub(crate) fn id(&self) -> LayerId {
        match self {
            Self::Use(id) => *id,
            Self::Move(step) => step.id,
        }
    }
}

/// A directory that moves from `ingest/` to `layers/`.
pub(crate) struct Move {
    pub(crate) id: LayerId,
    pub(crate) number: u64,
    pub(crate) layer: Arc<UnpackedLayer>,
    pub(crate) diff_id: Digest,
    /// Set when its directories depend on what is below.
    pub(crate) chain_id: Option<Digest>,
    /// A record of the same layer whose directory is gone.
    pub(crate) replaces: Option<LayerId>,
}

impl Inner {
    /// Decides for each layer, lowest first.
    pub(crate) fn plan(
        self: &Arc<Self>,
        lease: &Lease,
        sources: &[LayerSource],
        next_layer: &mut u64,
    ) -> Result<Vec<Step>, CommitError> {
        let mut steps: Vec<Step> = Vec::with_capacity(sources.len());
        let mut parent: Option<Digest> = None;
        for source in sources {
            let chain = chain_id(parent.as_ref(), source.diff_id());
            let step = match source {
                LayerSource::Present(layer) => {
                    self.use_layer(lease, layer.id, &layer.diff_id, &chain)?.ok_or_else(|| taken(source, &chain))?
                }
                LayerSource::New { layer, diff_id } => {
                    self.plan_new(lease, layer, diff_id, &chain, &steps, next_layer)?
                }
            };
            steps.push(step);
            parent = Some(chain);
        }
        Ok(steps)
    }

    fn plan_new(
        self: &Arc<Self>,
        lease: &Lease,
        layer: &Arc<UnpackedLayer>,
        diff_id: &Digest,
        chain: &Digest,
        below: &[Step],
        next_layer: &mut u64,
    ) -> Result<Step, CommitError> {
        let again = || CommitError::LayerTaken { diff_id: diff_id.clone(), chain_id: chain.clone() };
        if !Arc::ptr_eq(&layer.inner, self) {
            // Another store's.
            return Err(again());
        }
        // The same layer lower down in this very image.
        let twin = below.iter().find_map(|step| match step {
            Step::Move(step) if step.diff_id == *diff_id => Some(step),
            _ => None,
        });
        if let Some(twin) = twin {
            if twin.chain_id.as_ref().is_none_or(|other| other == chain) {
                return Ok(Step::Use(twin.id));
            }
            if Arc::ptr_eq(&twin.layer, layer) {
                return Err(again());
            }
        }
        // Another pull may have committed it meanwhile.
        if let Some(step) = self.use_found(lease, diff_id, chain)? {
            return Ok(step);
        }
        let (number, patched_for) = match layer.place() {
            Place::Private { number, patched_for } => (number, patched_for),
            // Committed for another stack, or removed since.
            Place::Committed | Place::Lost => return Err(again()),
        };
        let chain_id = self.depends_on_lower(layer, below)?.then(|| chain.clone());
        if patched_for.is_some() && patched_for != chain_id {
            return Err(again());
        }
        let replaces = self
            .db
            .read(|records| Self::recorded_layer(records, diff_id, chain).map_err(StoreError::from))?
            .map(|(id, _)| id);
        let id = LayerId(*next_layer);
        *next_layer += 1;
        Ok(Step::Move(Move { id, number, layer: Arc::clone(layer), diff_id: diff_id.clone(), chain_id, replaces }))
    }

    /// A layer that the caller found: it must still be there, be this one, and fit the stack.
    fn use_layer(
        &self,
        lease: &Lease,
        id: LayerId,
        diff_id: &Digest,
        chain: &Digest,
    ) -> Result<Option<Step>, StoreError> {
        let mut leases = self.lease_table();
        let entry = self.db.read(|records| Ok::<_, StoreError>(records.layer(id)?))?;
        let fits = |entry: &LayerEntry| {
            entry.diff_id == *diff_id
                && entry.chain_id.as_ref().is_none_or(|made_for| made_for == chain)
                && self.layout.has_layer(id)
        };
        if !entry.as_ref().is_some_and(fits) {
            return Ok(None);
        }
        lease.hold(&mut leases, id);
        Ok(Some(Step::Use(id)))
    }

    /// A layer that has become known since the caller looked.
    fn use_found(&self, lease: &Lease, diff_id: &Digest, chain: &Digest) -> Result<Option<Step>, StoreError> {
        let mut leases = self.lease_table();
        let found = self.db.read(|records| self.usable_layer(records, diff_id, chain))?;
        Ok(found.map(|(id, _)| {
            lease.hold(&mut leases, id);
            Step::Use(id)
        }))
    }

    /// Whether the layer's directories depend on what is below: it has paths whose parents it does not have itself. A
    /// root without an entry counts only when the root below is not a plain one.
    fn depends_on_lower(&self, layer: &UnpackedLayer, below: &[Step]) -> Result<bool, StoreError> {
        match layer.outcome.implicit_dirs.as_slice() {
            [] => Ok(false),
            [only] if only.is_empty() => match below.last() {
                None => Ok(false),
                Some(step) => Ok(!self.has_plain_root(step)?),
            },
            _ => Ok(true),
        }
    }

    fn has_plain_root(&self, step: &Step) -> Result<bool, StoreError> {
        let root = self.open_tree(step)?;
        let failed = |source: rustix::io::Errno| StoreError::io("look at", self.tree_path(step), source);
        let stat = rustix::fs::fstat(&root).map_err(failed)?;
        let (user, group) = if self.privileged {
            (0, 0)
        } else {
            (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
        };
        if stat.st_mode & 0o7777 != 0o755 || stat.st_uid != user || stat.st_gid != group {
            return Ok(false);
        }
        let mut names = vec![0_u8; 64 * 1024];
        match rustix::fs::flistxattr(&root, names.as_mut_slice()) {
            Ok(length) => Ok(length == 0),
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(true),
            // So many attributes are not plain.
            Err(rustix::io::Errno::RANGE | rustix::io::Errno::TOOBIG) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    /// Step 1. Lower layers first, since an upper one may take from them what they have just got.
    pub(crate) fn patch_implicit(&self, steps: &[Step]) -> Result<(), StoreError> {
        for (at, step) in steps.iter().enumerate() {
            let Step::Move(Move { layer, chain_id: Some(chain_id), .. }) = step else { continue };
            let lower = steps[..at].iter().rev().map(|step| self.open_tree(step)).collect::<Result<Vec<_>, _>>()?;
            let lower: Vec<BorrowedFd<'_>> = lower.iter().map(AsFd::as_fd).collect();
            let own = self.open_tree(step)?;
            layer.note_patch(chain_id);
            unpack::patch_implicit(own.as_fd(), &layer.outcome.implicit_dirs, &lower, self.privileged).map_err(
                |source| StoreError::io("set the attributes of directories in", self.tree_path(step), source),
            )?;
        }
        Ok(())
    }

    fn tree_path(&self, step: &Step) -> std::path::PathBuf {
        match step {
            Step::Use(id) => self.layout.fs_path(*id),
            Step::Move(step) => self.layout.ingest_path(step.number).join(FS),
        }
    }

    fn open_tree(&self, step: &Step) -> Result<OwnedFd, StoreError> {
        let directory = match step {
            Step::Use(id) => self.layout.open_layer(*id),
            Step::Move(step) => layout::open_directory(&self.layout.ingest, &step.number.to_string()),
        };
        directory
            .and_then(|directory| layout::open_directory(&directory, FS))
            .map_err(|source| StoreError::io("open", self.tree_path(step), source))
    }
}

fn taken(source: &LayerSource, chain: &Digest) -> CommitError {
    CommitError::LayerTaken { diff_id: source.diff_id().clone(), chain_id: chain.clone() }
}
