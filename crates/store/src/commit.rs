//! Making an image visible, in five steps: attributes of implicit directories, one sync of the file system, renames
//! into `layers/`, one transaction, and the note in the shared layers. A kill between any two leaves an image that is
//! absent and directories that the next open sweeps; a failure is undone at once.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError};

use oci::{Digest, ImageConfig, chain_id};
use redb::WriteTransaction;

use crate::db::{DbError, Document, Records, RecordsMut};
use crate::error::{CommitError, StoreError};
use crate::images;
use crate::ingest::{Place, UnpackedLayer};
use crate::layout::{self, FS};
use crate::lease::Lease;
use crate::open::{Durability, Inner, Store};
use crate::records::{ImageEntry, ImageRecord, Layer, LayerEntry, LayerId};
use crate::remove::release_layers;
use crate::unpack;

/// Where a layer of a new image comes from.
#[derive(Clone, Debug)]
pub enum LayerSource {
    /// It was found in the store, through the lease of the commit.
    Present(Layer),
    /// It was unpacked for this image, or for another pull at the same time. Its diff id has been verified.
    New {
        /// The unpacked layer.
        layer: Arc<UnpackedLayer>,
        /// Digest of its tar stream.
        diff_id: Digest,
    },
}

impl LayerSource {
    fn diff_id(&self) -> &Digest {
        match self {
            Self::Present(layer) => &layer.diff_id,
            Self::New { diff_id, .. } => diff_id,
        }
    }
}

/// An image that is to become visible.
#[derive(Clone, Debug, Default)]
pub struct ImageCommit {
    /// The config's bytes. Their digest is the image id.
    pub config: Vec<u8>,
    /// The manifest's bytes.
    pub manifest: Vec<u8>,
    /// Media type under which the manifest came.
    pub manifest_media_type: String,
    /// The index by which the manifest was found, if one.
    pub index: Option<Vec<u8>>,
    /// The tag that it is to have: `name:tag`.
    pub tag: Option<String>,
    /// The digest by which it was found: `name@digest`.
    pub repo_digest: Option<String>,
    /// Its layers, lowest first.
    pub layers: Vec<LayerSource>,
    /// Now, in nanoseconds since 1970. Kept only when the image is new.
    pub created_at_unix_nanos: i64,
    /// Whether it must be kept. A pin that the image has stays.
    pub pinned: bool,
    /// Anything that the caller wants to find again. Replaces what was there.
    pub annotations: BTreeMap<String, String>,
}

/// What becomes of one layer.
enum Step {
    /// The store has it.
    Use(LayerId),
    /// It gets this number.
    Move(Move),
}

impl Step {
    fn id(&self) -> LayerId {
        match self {
            Self::Use(id) => *id,
            Self::Move(step) => step.id,
        }
    }
}

/// A directory that moves from `ingest/` to `layers/`.
struct Move {
    id: LayerId,
    number: u64,
    layer: Arc<UnpackedLayer>,
    diff_id: Digest,
    /// Set when its directories depend on what is below.
    chain_id: Option<Digest>,
    /// A record of the same layer whose directory is gone.
    replaces: Option<LayerId>,
}

impl Store {
    /// Makes an image visible, or gives an image that is there its new names. All layers that the store had must have
    /// been found through `lease`.
    ///
    /// # Errors
    /// See [`CommitError`]. The store is then as it was before.
    pub fn commit_image(&self, lease: &Lease, commit: ImageCommit) -> Result<ImageRecord, CommitError> {
        let id = Digest::sha256(&commit.config);
        check_config(&id, &commit)?;
        let tag = commit.tag.as_deref().map(images::tag_name).transpose()?;
        let repo_digest = commit.repo_digest.as_deref().map(images::digest_name).transpose()?;

        let inner = &self.inner;
        let mut next_layer = inner.commit.lock().unwrap_or_else(PoisonError::into_inner);
        // On a disk that is nearly full, what is left is for removals.
        inner.db.reserve().ensure().map_err(|source| {
            StoreError::io("keep the reserve of", inner.layout.path.join(layout::RESERVE), source)
        })?;
        let steps = inner.plan(lease, &commit.layers, &mut next_layer)?;
        inner.patch_implicit(&steps)?;
        let moves: Vec<&Move> = steps
            .iter()
            .filter_map(|step| match step {
                Step::Move(step) => Some(step),
                Step::Use(_) => None,
            })
            .collect();
        if !moves.is_empty() && inner.durability == Durability::Full {
            inner.sync_file_system()?;
        }
        let mut moved = Moved { inner, done: Vec::new() };
        for step in &moves {
            moved.rename(step)?;
        }
        if !moves.is_empty() && inner.durability == Durability::Full {
            inner.layout.sync_directories().map_err(|source| StoreError::io("sync", &inner.layout.path, source))?;
        }
        // From here to the leases below, a removal must not take what has just become visible.
        let mut leases = inner.lease_table();
        let record = inner.db.write(|transaction| {
            let write = Write { transaction, id: &id, commit: &commit, tag, repo_digest, next_layer: *next_layer };
            write.image(inner, &steps)
        })?;
        for step in moved.done.drain(..) {
            let own = Lease::new(Arc::clone(inner));
            own.hold(&mut leases, step.id);
            lease.hold(&mut leases, step.id);
            step.layer.note_committed(step.id, own);
        }
        Ok(record)
    }
}

fn check_config(id: &Digest, commit: &ImageCommit) -> Result<(), CommitError> {
    let config =
        ImageConfig::parse(&commit.config).map_err(|source| CommitError::Config { id: id.clone(), source })?;
    if !config.rootfs.diff_ids.iter().eq(commit.layers.iter().map(LayerSource::diff_id)) {
        return Err(CommitError::LayersMismatch {
            id: id.clone(),
            expected: config.rootfs.diff_ids.len(),
            got: commit.layers.len(),
        });
    }
    Ok(())
}

impl Inner {
    /// Decides for each layer, lowest first.
    fn plan(&self, lease: &Lease, sources: &[LayerSource], next_layer: &mut u64) -> Result<Vec<Step>, CommitError> {
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
        &self,
        lease: &Lease,
        layer: &Arc<UnpackedLayer>,
        diff_id: &Digest,
        chain: &Digest,
        below: &[Step],
        next_layer: &mut u64,
    ) -> Result<Step, CommitError> {
        let again = || CommitError::LayerTaken { diff_id: diff_id.clone(), chain_id: chain.clone() };
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
            Place::Committed(_) | Place::Lost => return Err(again()),
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
    fn patch_implicit(&self, steps: &[Step]) -> Result<(), StoreError> {
        for (at, step) in steps.iter().enumerate() {
            let Step::Move(Move { layer, chain_id: Some(chain_id), .. }) = step else { continue };
            let lower = steps[..at].iter().rev().map(|step| self.open_tree(step)).collect::<Result<Vec<_>, _>>()?;
            let lower: Vec<BorrowedFd<'_>> = lower.iter().map(AsFd::as_fd).collect();
            let own = self.open_tree(step)?;
            layer.note_patch(chain_id);
            unpack::patch_implicit(own.as_fd(), &layer.outcome.implicit_dirs, &lower, self.privileged)
                .map_err(|source| StoreError::io("set the attributes of directories in", self.tree_path(step), source))?;
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

/// Step 3: renames, which are taken back unless the transaction comes about.
struct Moved<'a> {
    inner: &'a Inner,
    done: Vec<&'a Move>,
}

impl<'a> Moved<'a> {
    fn rename(&mut self, step: &'a Move) -> Result<(), StoreError> {
        let layout = &self.inner.layout;
        let (from, to) = (step.number.to_string(), step.id.to_string());
        rustix::fs::renameat(&layout.ingest, from.as_str(), &layout.layers, to.as_str())
            .map_err(|source| StoreError::io("move a layer to", layout.layer_path(step.id), source))?;
        self.done.push(step);
        Ok(())
    }
}

impl Drop for Moved<'_> {
    fn drop(&mut self) {
        let layout = &self.inner.layout;
        for step in &self.done {
            let (from, to) = (step.id.to_string(), step.number.to_string());
            if let Err(error) =
                rustix::fs::renameat(&layout.layers, from.as_str(), &layout.ingest, to.as_str())
            {
                tracing::warn!(%error, layer = %step.id, "a layer could not be moved back; the next start deletes it");
                step.layer.note_lost();
            }
        }
    }
}

/// Step 4: the transaction.
struct Write<'a> {
    transaction: &'a WriteTransaction,
    id: &'a Digest,
    commit: &'a ImageCommit,
    tag: Option<String>,
    repo_digest: Option<String>,
    next_layer: u64,
}

impl Write<'_> {
    fn image(self, inner: &Inner, steps: &[Step]) -> Result<ImageRecord, CommitError> {
        let Self { transaction, id, commit, .. } = self;
        for step in steps {
            if let Step::Move(step) = step {
                self.new_layer(inner, step)?;
            }
        }
        transaction.put_next_layer(self.next_layer)?;
        let before = transaction.image(id)?;
        let layers: Vec<LayerId> = steps.iter().map(Step::id).collect();
        let index_digest = commit.index.as_deref().map(Digest::sha256);
        let length = |bytes: &[u8]| bytes.len() as u64;
        let document_bytes =
            length(&commit.config) + length(&commit.manifest) + commit.index.as_deref().map_or(0, length);
        let mut entry = ImageEntry {
            manifest_digest: Digest::sha256(&commit.manifest),
            manifest_media_type: commit.manifest_media_type.clone(),
            index_digest,
            tags: before.as_ref().map(|entry| entry.tags.clone()).unwrap_or_default(),
            repo_digests: before.as_ref().map(|entry| entry.repo_digests.clone()).unwrap_or_default(),
            layers,
            document_bytes,
            size: 0,
            created_at_unix_nanos: before.as_ref().map_or(commit.created_at_unix_nanos, |e| e.created_at_unix_nanos),
            pinned: commit.pinned || before.as_ref().is_some_and(|entry| entry.pinned),
            annotations: commit.annotations.clone(),
        };
        // New references first, so that what both have is never without one.
        entry.size = document_bytes;
        for layer in entry.distinct_layers() {
            let mut layer_entry = transaction.layer_of_image(layer)?;
            layer_entry.references += 1;
            entry.size += layer_entry.stats.disk_bytes;
            transaction.put_layer(layer, &layer_entry)?;
        }
        if let Some(before) = &before {
            release_layers(transaction, before)?;
        }
        for name in [&self.tag, &self.repo_digest].into_iter().flatten() {
            images::take_name(transaction, id, name)?;
        }
        entry.tags.extend(self.tag);
        entry.repo_digests.extend(self.repo_digest);
        transaction.put_image(id, &entry)?;
        transaction.put_document(id, Document::Config, Some(&commit.config))?;
        transaction.put_document(id, Document::Manifest, Some(&commit.manifest))?;
        transaction.put_document(id, Document::Index, commit.index.as_deref())?;
        let mut totals = transaction.totals()?;
        totals.bytes = (totals.bytes + document_bytes).saturating_sub(before.as_ref().map_or(0, |e| e.document_bytes));
        totals.images += u64::from(before.is_none());
        transaction.put_totals(&totals)?;
        Ok(images::assemble(transaction, id.clone(), entry)?)
    }

    fn new_layer(&self, inner: &Inner, step: &Move) -> Result<(), DbError> {
        let transaction = self.transaction;
        let mut entry = LayerEntry {
            diff_id: step.diff_id.clone(),
            chain_id: step.chain_id.clone(),
            stats: step.layer.stats(),
            references: 0,
            unsynced_boot: (inner.durability == Durability::Relaxed).then(|| inner.boot.clone()),
        };
        let mut totals = transaction.totals()?;
        totals.add_layer(&entry.stats);
        if let Some(old) = step.replaces
            && let Some(old_entry) = transaction.layer(old)?
        {
            tracing::info!(layer = %old, new = %step.id, diff_id = %step.diff_id, "a damaged layer is replaced");
            entry.references = old_entry.references;
            for (image, mut image_entry) in transaction.images()? {
                if image_entry.layers.contains(&old) {
                    for layer in image_entry.layers.iter_mut().filter(|layer| **layer == old) {
                        *layer = step.id;
                    }
                    image_entry.size =
                        (image_entry.size + entry.stats.disk_bytes).saturating_sub(old_entry.stats.disk_bytes);
                    transaction.put_image(&image, &image_entry)?;
                }
            }
            totals.drop_layer(&old_entry.stats);
            transaction.delete_layer(old, &old_entry)?;
        }
        transaction.put_layer(step.id, &entry)?;
        transaction.put_totals(&totals)
    }
}
