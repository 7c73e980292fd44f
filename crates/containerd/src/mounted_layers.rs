//! [`MountedLayers`]: the layers of containerd's snapshotter overlayfs that are EROFS files ([`base::layer_mount`]), by the names of
//! their snapshots. containerd knows these layers as directories: it reports no bytes for them, and leaves their mounts behind.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::layer_mount::{self, LayerMount};
use base::lock::Mutex;
use cri_api::engine::runtime_store::DamagedLayer;
use erofs::Reader;

use crate::{Client, Result, Snapshot, labels};

/// Directory of the snapshots below that of a snapshotter.
pub(crate) const SNAPSHOTS: &str = "snapshots";
/// Name of the tree in the directory of a snapshot.
pub(crate) const TREE: &str = "fs";
/// How long it is believed that no other process has added layers.
const BELIEVED_FOR: Duration = Duration::from_secs(60);

/// The layers of one snapshotter.
#[derive(Clone, Debug)]
pub(crate) struct MountedLayers {
    snapshotter: String,
    snapshots: PathBuf,
    /// Guards the snapshots as containerd listed them last.
    known: Arc<Mutex<KnownLayers>>,
}

#[derive(Debug, Default)]
struct KnownLayers {
    read_at: Option<Instant>,
    by_name: HashMap<String, KnownLayer>,
}

#[derive(Clone, Debug)]
struct KnownLayer {
    parent: String,
    /// The layer, if it was an EROFS file when it was committed.
    layer: Option<LayerMount>,
}

impl MountedLayers {
    pub(crate) fn new(snapshotter: &str, root: &Path) -> Self {
        Self { snapshotter: snapshotter.to_owned(), snapshots: root.join(SNAPSHOTS), known: Arc::default() }
    }

    /// Directory of the snapshots.
    pub(crate) fn snapshots(&self) -> &Path {
        &self.snapshots
    }

    /// Returns true if the layers of a committed snapshot and of its parents can be used. Mounts those that are not mounted.
    pub(crate) async fn are_ready(&self, client: &Client, name: &str) -> Result<bool> {
        if let Some(layers) = self.chain(name)
            && Self::make_ready(layers).await
        {
            return Ok(true);
        }
        // The snapshots may be others by now.
        self.read(client).await?;
        match self.chain(name) {
            Some(layers) => Ok(Self::make_ready(layers).await),
            None => Ok(false),
        }
    }

    /// Returns the layer of a snapshot, if it was committed as an EROFS file and cannot be used.
    pub(crate) async fn damaged(&self, client: &Client, name: &str) -> Result<Option<LayerMount>> {
        if self.layer(name).is_none() {
            self.read(client).await?;
        }
        let Some(layer) = self.layer(name).flatten() else { return Ok(None) };
        let is_ready = Self::make_ready(vec![layer.clone()]).await;
        Ok((!is_ready).then_some(layer))
    }

    /// Bytes on disk of the file of a snapshot.
    pub(crate) async fn bytes(&self, client: &Client, name: &str) -> Result<u64> {
        if self.layer(name).is_none() {
            self.read(client).await?;
        }
        Ok(self.layer(name).flatten().map_or(0, |layer| layer.bytes()))
    }

    /// Notes a layer that this process committed.
    pub(crate) fn note(&self, name: &str, parent: &str, tree: &Path) {
        let layer = LayerMount::of(tree).filter(LayerMount::is_linked);
        self.known.lock().by_name.insert(name.to_owned(), KnownLayer { parent: parent.to_owned(), layer });
    }

    async fn read(&self, client: &Client) -> Result<()> {
        let found = client.committed_snapshots(&self.snapshotter).await?;
        let by_name = found.into_iter().map(|snapshot| (snapshot.name.clone(), self.known_layer(&snapshot))).collect();
        *self.known.lock() = KnownLayers { read_at: Some(Instant::now()), by_name };
        Ok(())
    }

    fn known_layer(&self, snapshot: &Snapshot) -> KnownLayer {
        let directory = snapshot.labels.get(labels::DIRECTORY).filter(|name| is_number(name));
        let tree = directory.map(|name| self.snapshots.join(name).join(TREE));
        KnownLayer { parent: snapshot.parent.clone(), layer: tree.and_then(|tree| LayerMount::of(&tree)) }
    }

    fn layer(&self, name: &str) -> Option<Option<LayerMount>> {
        self.known.lock().by_name.get(name).map(|known| known.layer.clone())
    }

    /// Returns the layers of a snapshot and its parents that are EROFS files; `None` if one of the snapshots is not known.
    fn chain(&self, name: &str) -> Option<Vec<LayerMount>> {
        let known = self.known.lock();
        known.read_at.filter(|read_at| read_at.elapsed() < BELIEVED_FOR)?;
        let (mut layers, mut at) = (Vec::new(), name);
        while !at.is_empty() {
            let found = known.by_name.get(at)?;
            layers.extend(found.layer.clone());
            at = &found.parent;
        }
        Some(layers)
    }

    async fn make_ready(layers: Vec<LayerMount>) -> bool {
        if layers.is_empty() {
            return true;
        }
        let ready = move || {
            let mut is_ready = true;
            for layer in layers {
                if let Err(error) = layer.make_ready() {
                    tracing::warn!(%error, "a layer cannot be mounted: its images count as absent");
                    is_ready = false;
                }
            }
            is_ready
        };
        tokio::task::spawn_blocking(ready).await.unwrap_or(false)
    }

    /// Mounts what is not mounted, and removes what is left of layers that containerd removed.
    pub(crate) async fn sweep(&self) -> io::Result<()> {
        let snapshots = self.snapshots.clone();
        let tend = move || {
            let mounted = layer_mount::mount_all(&snapshots, TREE)?;
            Ok((mounted, layer_mount::sweep(&snapshots, TREE)?))
        };
        let (mounted, swept) = tokio::task::spawn_blocking(tend).await.map_err(io::Error::other).flatten()?;
        if mounted.mounted > 0 {
            tracing::info!(layers = mounted.mounted, "mounted layers that were not mounted");
        }
        for (layer, error) in mounted.failed {
            tracing::warn!(layer = %layer.display(), %error, "a layer cannot be mounted: its images count as absent");
        }
        if swept > 0 {
            tracing::info!(layers = swept, "unmounted the layers of removed images");
        }
        Ok(())
    }

    /// Returns the layers whose files are missing or damaged, or which cannot be mounted.
    pub(crate) async fn damaged_files(&self, repair: bool) -> io::Result<Vec<DamagedLayer>> {
        let snapshots = self.snapshots.clone();
        let check = move || {
            let mut damaged = Vec::new();
            for layer in layer_mount::linked_layers(&snapshots, TREE)? {
                let Err(error) = check(&layer) else { continue };
                if repair && layer.file().exists() {
                    layer.discard()?;
                }
                damaged.push(DamagedLayer { file: layer.file(), why: error.to_string() });
            }
            Ok(damaged)
        };
        tokio::task::spawn_blocking(check).await.map_err(io::Error::other).flatten()
    }

    /// Bytes on disk and number of the files of all layers.
    pub(crate) async fn usage(&self) -> io::Result<(u64, u64)> {
        let snapshots = self.snapshots.clone();
        let usage = move || {
            let layers = layer_mount::linked_layers(&snapshots, TREE)?;
            Ok((layers.iter().map(LayerMount::bytes).sum(), layers.len() as u64))
        };
        tokio::task::spawn_blocking(usage).await.map_err(io::Error::other)?
    }
}

/// Checks everything of a layer's file but the content of files, and mounts it if it is not mounted.
fn check(layer: &LayerMount) -> io::Result<()> {
    let file = std::fs::File::open(layer.file())?;
    let reader = Reader::open(&file)?;
    if !reader.is_nested() {
        return Err(io::Error::other("its tree is at the top of the file"));
    }
    reader.check()?;
    layer.make_ready().map(drop)
}

/// Returns true for the name of a snapshot's directory. A label is a text from outside.
fn is_number(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
}
