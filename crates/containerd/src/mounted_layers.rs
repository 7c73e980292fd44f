//! [`MountedLayers`]: the layers of containerd's snapshotter overlayfs that are EROFS files ([`base::layer_mount`]), by the names of
//! their snapshots. containerd knows these layers as directories: it reports no bytes for them, and leaves their mounts behind.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::layer_mount::{self, LayerError, LayerMount};
use base::lock::Mutex;
use cri_api::engine::runtime_store::{DamagedLayer, LayerUsage};
use erofs::{ReadError, Reader};

use crate::{Client, Error, ErrorKind, Result, Snapshot, labels};

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
    /// Guards the layers that a sweep could not mount, of which each is warned once.
    warned: Arc<Mutex<BTreeSet<PathBuf>>>,
    /// Guards what containerd counted for layers that are files, by their trees. It never changes for a snapshot.
    counted: Arc<Mutex<HashMap<PathBuf, u64>>>,
}

/// A damaged layer, with the reason.
type DamagedMount = (LayerMount, io::Error);

/// The layers that are meant by the name of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// The layer of the snapshot.
    Layer,
    /// The layers of the snapshot and of all below it.
    Chain,
}

#[derive(Debug, Default)]
struct KnownLayers {
    read_at: Option<Instant>,
    by_name: HashMap<String, KnownLayer>,
}

impl KnownLayers {
    fn is_fresh(&self) -> bool {
        self.read_at.is_some_and(|read_at| read_at.elapsed() < BELIEVED_FOR)
    }
}

#[derive(Clone, Debug)]
struct KnownLayer {
    parent: String,
    /// The layer, if it was an EROFS file when it was committed.
    layer: Option<LayerMount>,
}

impl MountedLayers {
    pub(crate) fn new(snapshotter: &str, root: &Path) -> Self {
        let (known, warned, counted) = (Arc::default(), Arc::default(), Arc::default());
        Self { snapshotter: snapshotter.to_owned(), snapshots: root.join(SNAPSHOTS), known, warned, counted }
    }

    /// Directory of the snapshots.
    pub(crate) fn snapshots(&self) -> &Path {
        &self.snapshots
    }

    /// Returns true if the layers of a committed snapshot and of its parents can be used. Mounts those that are not mounted.
    pub(crate) async fn are_ready(&self, client: &Client, name: &str) -> Result<bool> {
        let Some(damaged) = self.find_damaged(client, name, Reach::Chain).await? else { return Ok(false) };
        for (_, error) in &damaged {
            tracing::warn!(%error, "a layer is damaged: its images count as absent");
        }
        Ok(damaged.is_empty())
    }

    /// Returns the layer of a snapshot, if it was committed as an EROFS file and is damaged.
    pub(crate) async fn damaged(&self, client: &Client, name: &str) -> Result<Option<LayerMount>> {
        let damaged = self.find_damaged(client, name, Reach::Layer).await?.unwrap_or_default();
        Ok(damaged.into_iter().next().map(|(layer, _)| layer))
    }

    /// Returns the damaged layers; `None` if containerd does not know the snapshot. Mounts the others.
    async fn find_damaged(&self, client: &Client, name: &str, reach: Reach) -> Result<Option<Vec<DamagedMount>>> {
        if let Some(layers) = self.layers(name, reach) {
            let damaged = make_ready(name, layers).await?;
            if damaged.is_empty() {
                return Ok(Some(damaged));
            }
        }
        // The snapshots may be others by now.
        self.read(client).await?;
        match self.layers(name, reach) {
            Some(layers) => make_ready(name, layers).await.map(Some),
            None => Ok(None),
        }
    }

    /// Bytes on disk of the file of a snapshot; `None` if its layer is a directory.
    pub(crate) async fn bytes(&self, client: &Client, name: &str) -> Result<Option<u64>> {
        if self.layer(name).is_none() {
            self.read(client).await?;
        }
        Ok(self.layer(name).flatten().filter(LayerMount::is_linked).map(|layer| layer.bytes()))
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

    /// Returns the layers that are EROFS files; `None` if one of the snapshots is not known.
    fn layers(&self, name: &str, reach: Reach) -> Option<Vec<LayerMount>> {
        let known = self.known.lock();
        known.is_fresh().then_some(())?;
        let (mut layers, mut at) = (Vec::new(), name);
        while !at.is_empty() {
            let found = known.by_name.get(at)?;
            layers.extend(found.layer.clone());
            if reach == Reach::Layer {
                break;
            }
            at = &found.parent;
        }
        Some(layers)
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
        let mut warned = self.warned.lock();
        warned.retain(|layer| mounted.failed.iter().any(|(failed, _)| failed == layer));
        for (layer, error) in mounted.failed {
            if warned.insert(layer) {
                tracing::warn!(%error, "a layer is not mounted: its images count as absent");
            }
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
                let why = match check(&layer) {
                    Ok(()) => continue,
                    Err(LayerError::Damaged(why)) => why.to_string(),
                    // Nothing is known of the layer.
                    Err(LayerError::Failed(error)) => return Err(error),
                };
                if repair && layer.file().exists() {
                    layer.discard()?;
                }
                damaged.push(DamagedLayer { file: layer.file(), why });
            }
            Ok(damaged)
        };
        tokio::task::spawn_blocking(check).await.map_err(io::Error::other).flatten()
    }

    /// Bytes on disk and number of the files of all layers, in place of what containerd counted for these layers when they were
    /// committed: next to nothing, or the directory that the file has replaced.
    pub(crate) async fn usage(&self, client: &Client) -> Result<LayerUsage> {
        if !self.known.lock().is_fresh() {
            self.read(client).await?;
        }
        let layers: Vec<(String, LayerMount)> = {
            let known = self.known.lock();
            let files = known.by_name.iter().filter_map(|(name, known)| Some((name.clone(), known.layer.clone()?)));
            files.collect()
        };
        let measure = move || {
            let linked = layers.into_iter().filter(|(_, layer)| layer.is_linked());
            linked.map(|(name, layer)| (name, layer.bytes(), layer)).collect::<Vec<_>>()
        };
        let measured = tokio::task::spawn_blocking(measure).await.map_err(|error| {
            Error::new(ErrorKind::Failed, "measure the layers of", &self.snapshotter, error.to_string())
        })?;
        let (mut usage, mut all) = (LayerUsage::default(), HashMap::new());
        for (name, bytes, layer) in measured {
            let known = self.counted.lock().get(layer.tree()).copied();
            let counted = match known {
                Some(counted) => counted,
                None => client.snapshot_usage(&self.snapshotter, &name).await?.bytes,
            };
            usage.files += 1;
            usage.bytes += bytes;
            usage.counted_bytes += counted;
            all.insert(layer.tree().to_owned(), counted);
        }
        *self.counted.lock() = all;
        Ok(usage)
    }
}

/// Mounts the layers that are not mounted, and returns the damaged ones. `name` is the snapshot that needs them.
async fn make_ready(name: &str, layers: Vec<LayerMount>) -> Result<Vec<DamagedMount>> {
    if layers.is_empty() {
        return Ok(Vec::new());
    }
    let ready = move || {
        let mut damaged = Vec::new();
        for layer in layers {
            match layer.make_ready() {
                Ok(_) => {}
                Err(LayerError::Damaged(why)) => damaged.push((layer, why)),
                Err(LayerError::Failed(error)) => return Err(error),
            }
        }
        Ok(damaged)
    };
    let ready = tokio::task::spawn_blocking(ready).await.map_err(io::Error::other).flatten();
    ready.map_err(|error| Error::new(ErrorKind::Failed, "mount the layers of", name, error.to_string()))
}

/// Checks everything of a layer's file but the content of files, and mounts it if it is not mounted.
fn check(layer: &LayerMount) -> std::result::Result<(), LayerError> {
    let path = layer.file();
    let of_reader = |error: ReadError| match error {
        ReadError::Source(error) => LayerError::Failed(named(&path, &error)),
        error => LayerError::Damaged(named(&path, &error)),
    };
    layer.make_ready()?;
    let file = std::fs::File::open(&path).map_err(|error| LayerError::Failed(named(&path, &error)))?;
    let reader = Reader::open(&file).map_err(of_reader)?;
    if !reader.is_nested() {
        return Err(LayerError::Damaged(named(&path, &"its tree is at the top of the file")));
    }
    reader.check().map(drop).map_err(of_reader)
}

fn named(path: &Path, error: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {error}", path.display()))
}

/// Returns true for the name of a snapshot's directory. A label is a text from outside.
fn is_number(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
}
