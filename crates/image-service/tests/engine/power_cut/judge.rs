//! Demands on a store after a power cut: it opens; every image that was reported as pulled is present; everything
//! present is complete, to the last byte; no file is left that belongs to no image, and the store reports the space
//! that it takes.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use cri_api::ImageService as _;
use image_service::Engine;
use store::Store;
use store::check::{CheckOptions, Depth};
use testdisk::{Event, Image};

use super::cuts::Cut;
use super::work::Record;

/// Promise of a store for the time after a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Everything reported is so, and everything there is whole.
    Durable,
    /// Everything present is complete, and everything reported before the last clean end is so, unless it was changed
    /// since.
    Settled,
}

/// Images that a name may lead to; `None`: to nothing.
#[derive(Clone, Default)]
struct May {
    ids: BTreeSet<Option<String>>,
    /// The name was not touched since the last clean end.
    settled: bool,
}

type Expected = BTreeMap<String, May>;

/// Everything that was reported: of the names; whether a store with this past must know that it had no clean end; and the shape of its
/// layers, where all of them have just got one.
fn expected(events: &[Event]) -> (Expected, bool, Option<String>) {
    let mut expected = Expected::new();
    let mut unclean = false;
    let mut shape = None;
    for event in events {
        let Event::Note(text) = event else { continue };
        let words: Vec<&str> = text.split(' ').collect();
        let mut names: Vec<&str> = Vec::new();
        let (mut is, mut may) = (None, None);
        if !matches!(words[0], "removing" | "removed") {
            shape = None;
        }
        match words[..] {
            ["pulling", name, id] => (names, may) = (vec![name], Some(Some(id.to_owned()))),
            ["pulled", name, id] => (names, is, unclean) = (vec![name], Some(Some(id.to_owned())), true),
            ["removing", ..] => (names, may) = (words[1..].to_vec(), Some(None)),
            ["removed", ..] => (names, is) = (words[1..].to_vec(), Some(None)),
            ["converting"] => expected.values_mut().for_each(|may| may.settled = false),
            ["mounted" | "unmounted" | "ending"] => unclean &= words != ["ending"],
            ["converted", to] => shape = Some(to.to_owned()),
            ["settled"] => expected.values_mut().for_each(|may| may.settled = true),
            _ => panic!("{text:?} says nothing"),
        }
        for name in names {
            let known = expected.entry(name.to_owned()).or_insert_with(|| May { ids: [None].into(), settled: false });
            known.settled = false;
            if let Some(is) = &is {
                known.ids = [is.clone()].into();
            }
            known.ids.extend(may.clone());
        }
    }
    (expected, unclean, shape)
}

/// Judges a disk after a cut. `go_on`: then uses it, as a node does that starts again.
pub(crate) fn judge(record: &Record, image: &Image, cut: &Cut, promise: Promise, go_on: bool) -> Result<(), String> {
    let (expected, unclean, shape) = expected(&record.events[..cut.end]);
    let mounted = image.mount().map_err(|error| format!("the disk cannot be mounted: {error}"))?;
    let root = mounted.path().join("store");
    let store = Store::open(&root, record.setting.store("the boot after"))
        .map_err(|error| format!("does not open: {error}: {error:?}"))?;
    if promise == Promise::Durable && unclean && !store.was_unclean() {
        return Err("does not know that it had no clean end".to_owned());
    }
    if let Some(shape) = shape.filter(|_| promise == Promise::Durable) {
        let (directories, images) = store.layers_by_shape().map_err(|error| error.to_string())?;
        let wrong = if shape == "Dir" { images } else { directories };
        if wrong > 0 {
            return Err(format!("{wrong} layers are not what all were converted to, which is {shape}"));
        }
    }
    names(record, &store, &expected, promise)?;
    whole(record, &store)?;
    nothing_else(&store)?;
    drop(store);
    if go_on { go_on_with(record, mounted.path()) } else { Ok(()) }
}

fn names(record: &Record, store: &Store, expected: &Expected, promise: Promise) -> Result<(), String> {
    for (name, may) in expected {
        let full = format!("{}/{name}", record.registry.host());
        let found =
            store.resolve(&full.into()).map_err(|error| format!("{name}: {error}"))?.map(|found| found.id.to_string());
        let is_bound = promise == Promise::Durable || may.settled;
        // Without a promise it may be what it was before, which was an image all the same, or nothing.
        if may.ids.contains(&found) || !is_bound && found.as_ref().is_none_or(|id| record.images.contains_key(id)) {
            continue;
        }
        let wrong = if found.is_none() { "was pulled, and is gone" } else { "is something else" };
        return Err(format!("{name} {wrong}: {found:?} instead of one of {:?}", may.ids));
    }
    Ok(())
}

/// By the store's own full check, and by what the registry has.
fn whole(record: &Record, store: &Store) -> Result<(), String> {
    let everything = CheckOptions {
        depth: Depth::Files,
        repair: false,
        recent_only: false,
        cancelled: &|| false,
        progress: &|_| {},
    };
    let report = store.check(&everything).map_err(|error| format!("the check: {error}"))?;
    if !report.problems.is_empty() || !report.incomplete_images.is_empty() {
        return Err(format!("not whole: {:?}, incomplete: {:?}", report.problems, report.incomplete_images));
    }
    for found in store.images().map_err(|error| error.to_string())? {
        let built = record.images.get(&found.id.to_string()).ok_or_else(|| format!("{} was never pulled", found.id))?;
        let layers = store.image_layers(&found).map_err(|error| format!("{}: {error}", found.id))?;
        if layers.len() != built.layers.len() {
            return Err(format!("{} has {} layers", found.id, layers.len()));
        }
        for (layer, built) in layers.iter().zip(&built.layers) {
            let mut stream = Vec::new();
            store.export_layer(layer, &mut stream).map_err(|error| format!("layer {}: {error}", layer.id))?;
            if stream[..] != built.tar[..] {
                return Err(format!("layer {} is not as it came", layer.id));
            }
        }
    }
    Ok(())
}

fn names_in(directory: &Path) -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    Ok(entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect())
}

/// Bytes on the disk.
fn measure(path: &Path) -> u64 {
    let metadata = std::fs::symlink_metadata(path).expect("is there");
    let mut bytes = metadata.blocks() * 512;
    if metadata.is_dir() {
        for entry in std::fs::read_dir(path).expect("readable") {
            bytes += measure(&entry.expect("an entry").path());
        }
    }
    bytes
}

/// The store holds what its records say, and nothing else.
fn nothing_else(store: &Store) -> Result<(), String> {
    let root = store.root();
    let left = names_in(&root.join("ingest"))?;
    // Leftovers of pulls that can be resumed, each with a file that says so, and reported by the store.
    let told = store.unfinished();
    if left.len() as u64 != 2 * (told.layers + told.blobs) {
        return Err(format!("left over: {left:?}, of which are told {told:?}"));
    }
    let mounts = root.join("mounts");
    if mounts.exists() && !names_in(&mounts)?.is_empty() {
        return Err(format!("left of mounts: {:?}", names_in(&mounts)?));
    }
    let totals = store.totals().map_err(|error| error.to_string())?;
    let layers = names_in(&root.join("layers"))?;
    if layers.len() as u64 != totals.layers {
        return Err(format!("{} layers on the disk, {} in the records", layers.len(), totals.layers));
    }
    let mut seen = BTreeSet::new();
    for image in store.images().map_err(|error| error.to_string())? {
        for layer in store.image_layers(&image).map_err(|error| error.to_string())? {
            let on_disk = measure(&root.join("layers").join(layer.id.to_string()));
            if layer.stats.disk_bytes != on_disk {
                return Err(format!(
                    "layer {} takes {on_disk} bytes, and is said to take {}",
                    layer.id, layer.stats.disk_bytes
                ));
            }
            seen.insert(layer.id.to_string());
        }
    }
    if seen.len() != layers.len() {
        return Err(format!("layers that no image has: {layers:?} against {seen:?}"));
    }
    let known = ["blobs", "ingest", "layers", "lock", "meta.redb", "mounts", "reserve", "version", "young"];
    let strange: Vec<String> = names_in(root)?.into_iter().filter(|name| !known.contains(&name.as_str())).collect();
    if strange.is_empty() { Ok(()) } else { Err(format!("in the root: {strange:?}")) }
}

/// The node starts again and pulls everything that there is.
fn go_on_with(record: &Record, disk: &Path) -> Result<(), String> {
    let engine_options = record.setting.engine(disk, "the boot after");
    record.runtime.block_on(async {
        let engine = Engine::open(engine_options).await.map_err(|error| format!("does not open again: {error}"))?;
        for name in &record.names {
            let request = cri_api::PullImageRequest::new(format!("{}/{name}", record.registry.host()));
            engine.pull_image(request).await.map_err(|error| format!("cannot pull {name} any more: {error}"))?;
        }
        engine.settled().await;
        whole(record, engine.store())?;
        nothing_else(engine.store())?;
        engine.shutdown().await;
        Ok(())
    })
}
