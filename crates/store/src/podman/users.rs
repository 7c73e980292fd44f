//! Users of layers of the view: overlay mounts of running containers, in any mount namespace, and layers of podman's own stores
//! that are on top of ours, which are those of containers (also stopped ones) and of images that were built on ours.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use base::{OverlayMount, overlay_mounts};
use serde::Deserialize;

/// Where podman and CRI-O keep containers, unless configured otherwise.
pub(crate) const DEFAULT_GRAPH_ROOT: &str = "/var/lib/containers/storage";

/// A user of layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LinkUser {
    /// The mount point, or the directory of the layer above ours in podman's store, or that of an image there.
    pub(super) place: PathBuf,
    /// Short names of the layers.
    pub(super) links: BTreeSet<String>,
}

/// Names by which users are found.
#[derive(Debug, Default)]
pub(super) struct KnownLayers {
    /// Short names.
    pub(super) links: BTreeSet<String>,
    /// By id, the short names of a layer and of all below it.
    pub(super) stacks: BTreeMap<String, BTreeSet<String>>,
}

/// The users of layers by these short names. `tree_of` is where the layer of a short name lies.
pub(super) fn find(
    known: &KnownLayers,
    tree_of: &dyn Fn(&str) -> PathBuf,
    graph_roots: &[PathBuf],
) -> io::Result<Vec<LinkUser>> {
    let (mut users, links) = (Vec::new(), &known.links);
    if links.is_empty() {
        return Ok(users);
    }
    for OverlayMount { target, lower } in overlay_mounts()? {
        let shown = lower.iter().filter_map(|path| used_link(path, links, tree_of)).collect::<BTreeSet<_>>();
        if !shown.is_empty() {
            users.push(LinkUser { place: target, links: shown });
        }
    }
    // The root of a container, seen from inside, says less than any other place.
    users.sort_by_key(|user| user.place == Path::new("/"));
    for root in graph_roots {
        users.extend(above(&root.join("overlay"), links)?);
        users.extend(images(&root.join("overlay-images"), &known.stacks)?);
    }
    Ok(users)
}

/// The layer that this lower directory of a mount is: `…/overlay/l/<link>`, or the directory of a layer of the view, which is the
/// lower one where podman mounts an image by itself.
fn used_link(path: &Path, links: &BTreeSet<String>, tree_of: &dyn Fn(&str) -> PathBuf) -> Option<String> {
    let identity = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    let there = identity(path);
    let name = path.file_name()?.to_str()?;
    if let Some(link) = links.get(name) {
        let own = identity(&tree_of(link));
        // Another root has layers of the same names. An unreachable directory counts as ours.
        return (there.is_none() || there == own).then(|| link.clone());
    }
    if name != "diff" && name != "fs" {
        return None;
    }
    let there = there?;
    links.iter().find(|link| identity(&tree_of(link)) == Some(there)).cloned()
}

/// Layers of podman's own store that lie on layers of these short names.
fn above(overlay: &Path, links: &BTreeSet<String>) -> io::Result<Vec<LinkUser>> {
    let entries = match std::fs::read_dir(overlay) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut users = Vec::new();
    for entry in entries {
        let place = entry?.path();
        let lower = match std::fs::read_to_string(place.join("lower")) {
            Ok(lower) => lower,
            // A layer without layers below it, one that is being removed, or no layer.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => continue,
            Err(error) => return Err(error),
        };
        let named = lower_links(&lower).filter(|link| links.contains(*link)).map(str::to_owned);
        let named: BTreeSet<String> = named.collect();
        if !named.is_empty() {
            users.push(LinkUser { place, links: named });
        }
    }
    Ok(users)
}

/// An image in podman's own store.
#[derive(Deserialize)]
struct PodmanImage {
    id: String,
    #[serde(default)]
    layer: Option<String>,
}

/// Images of podman's own store whose topmost layer is ours: podman had all their layers already when it got them.
fn images(directory: &Path, stacks: &BTreeMap<String, BTreeSet<String>>) -> io::Result<Vec<LinkUser>> {
    let rows = match std::fs::read(directory.join("images.json")) {
        Ok(rows) => rows,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let images: Vec<PodmanImage> = if rows.is_empty() { Vec::new() } else { serde_json::from_slice(&rows)? };
    let of = |image: PodmanImage| {
        let links = stacks.get(&image.layer?)?.clone();
        Some(LinkUser { place: directory.join(image.id), links })
    };
    Ok(images.into_iter().filter_map(of).collect())
}

/// The short names of a `lower` file: `l/<link>:l/<link>`.
fn lower_links(text: &str) -> impl Iterator<Item = &str> {
    text.trim().split(':').filter_map(|lower| lower.strip_prefix("l/"))
}

#[cfg(test)]
#[path = "users_tests.rs"]
mod tests;
