//! Contents of a docker archive (`docker save`, `podman save`): its `manifest.json`, and a manifest made up for each image
//! in it, since such archives have none. Layers lie under names of their own; their digest is the diff id where they
//! are plain tar, is part of the name where docker names them so, and is computed otherwise. Called by the import.

use std::collections::{BTreeSet, HashMap};

use crate::inflate::{Compression, MAGIC, detect};
use bytes::Bytes;
use cri_api::Result;
use oci::{Descriptor, Digest, ImageConfig, Reference, media_type};
use serde::Deserialize;

use super::archive::{Archive, ArchivedImage, Extent};
use crate::error::{self, damaged, invalid};

/// The file with the images.
pub(crate) const MANIFEST: &str = "manifest.json";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ManifestItem {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    #[serde(default)]
    layers: Option<Vec<String>>,
}

/// The images of the archive; `None` when it is no docker archive.
pub(crate) fn entries(archive: &Archive) -> Result<Option<Vec<ArchivedImage>>> {
    let Some(extent) = archive.find(MANIFEST)? else { return Ok(None) };
    let place = archive.path().display();
    let items: Vec<ManifestItem> = oci::json::from_slice(&archive.read(&extent, MANIFEST)?)
        .map_err(|e| damaged(format!("{place}: {MANIFEST}: {e}")))?;
    items.into_iter().map(|item| entry(archive, item)).collect::<Result<Vec<_>>>().map(Some)
}

fn entry(archive: &Archive, item: ManifestItem) -> Result<ArchivedImage> {
    let place = archive.path().display();
    let config = archive.read(&archive.get(&item.config)?, &item.config)?;
    let parsed = ImageConfig::parse(&config).map_err(|e| damaged(format!("{place}: {}: {e}", item.config)))?;
    let names = item.repo_tags.unwrap_or_default();
    let name = |text: &String| {
        Reference::parse(text)
            .map(Reference::canonical)
            .map_err(|e| invalid(format!("{place}: {MANIFEST}: couldn't parse image name {text:?}: {e}")))
    };
    let names = names.iter().map(name).collect::<Result<BTreeSet<_>>>()?;
    let paths = item.layers.unwrap_or_default();
    let diff_ids = &parsed.rootfs.diff_ids;
    if paths.len() != diff_ids.len() {
        let (layers, ids) = (paths.len(), diff_ids.len());
        return Err(damaged(format!(
            "{place}: {MANIFEST} lists {layers} layers and {} has {ids} diff ids",
            item.config
        )));
    }
    let mut layers = HashMap::new();
    // What is listed again and again is read once.
    let mut known: HashMap<&str, Descriptor> = HashMap::new();
    let mut descriptors = Vec::with_capacity(paths.len());
    for (path, diff_id) in paths.iter().zip(diff_ids) {
        let extent = archive.get(path)?;
        if let Some(descriptor) = known.get(path.as_str()) {
            descriptors.push(descriptor.clone());
            continue;
        }
        let descriptor = layer(&extent, path, diff_id).map_err(|e| e.context(format_args!("{place}: {path}")))?;
        layers.insert(descriptor.digest.clone(), extent);
        known.insert(path, descriptor.clone());
        descriptors.push(descriptor);
    }
    let config_descriptor = Descriptor::new(media_type::OCI_CONFIG, Digest::sha256(&config), config.len() as u64);
    let manifest = super::manifest_bytes(&config_descriptor, &descriptors, None)?;
    let descriptor = Descriptor::new(media_type::OCI_MANIFEST, Digest::sha256(&manifest), manifest.len() as u64);
    let documents = HashMap::from([
        (config_descriptor.digest, Bytes::from(config)),
        (descriptor.digest.clone(), Bytes::from(manifest)),
    ]);
    Ok(ArchivedImage { descriptor, names, layers, documents, has_manifest: false })
}

/// The descriptor of a layer. Whatever digest it gets here, the pipeline checks it against the bytes.
fn layer(extent: &Extent, path: &str, diff_id: &Digest) -> Result<Descriptor> {
    let io = |e: std::io::Error| error::from_file("read", path.as_ref(), &e);
    let head = extent.read(0, MAGIC as u64).map_err(io)?;
    let compression = detect(&head).map_err(|e| invalid(e.to_string()))?;
    let media_type = match compression {
        Compression::Plain => media_type::OCI_LAYER,
        Compression::Gzip => media_type::OCI_LAYER_GZIP,
        Compression::Zstd => media_type::OCI_LAYER_ZSTD,
    };
    let digest = match (compression, digest_in(path)) {
        (Compression::Plain, _) => diff_id.clone(),
        (_, Some(digest)) => digest,
        (_, None) => extent.digest().map_err(io)?,
    };
    Ok(Descriptor::new(media_type, digest, extent.size))
}

/// `blobs/sha256/<hex>` has its digest in its name.
fn digest_in(path: &str) -> Option<Digest> {
    let (algorithm, hex) = path.strip_prefix("blobs/")?.split_once('/')?;
    format!("{algorithm}:{hex}").parse().ok()
}
