//! The content of the view, by the records: a row for each layer and image that podman can use, and the reason for each image that it
//! cannot. Reads records; writes nothing.

use std::collections::{BTreeMap, BTreeSet};

use cri_api::engine::HiddenImage;
use oci::{Digest, Document, ImageConfig, Manifest};

use super::documents::{PodmanImageRow, PodmanLayerRow, compression, layer_id, link_name, time};
use crate::disk::layer::LayerId;
use crate::error::StoreError;
use crate::layers::Layers;
use crate::records::entries::{ImageEntry, Layer};
use crate::records::tables::{DocumentKind, Records};
use crate::view::stack::stack;

/// A layer of the view.
#[derive(Debug)]
pub(super) struct ViewLayer {
    pub(super) row: PodmanLayerRow,
    /// Short name.
    pub(super) link: String,
    /// Short names of the layers below, the topmost first.
    pub(super) lower: Vec<String>,
    /// The layer of the store that it shows.
    pub(super) layer: LayerId,
    /// True if that layer is an EROFS file, which is mounted.
    pub(super) is_file: bool,
}

/// Questions about layers that the records do not answer.
pub(super) struct LayerFacts<'a> {
    /// Returns the length of a layer's tar stream.
    pub(super) size_of: &'a mut dyn FnMut(&Layer) -> u64,
    /// Returns true if a layer that is an EROFS file can be mounted for the view.
    pub(super) is_mountable: &'a mut dyn FnMut(LayerId) -> bool,
}

/// An image of the view.
#[derive(Debug)]
pub(super) struct ViewImage {
    pub(super) row: PodmanImageRow,
    /// Documents, by the keys under which podman finds them.
    pub(super) documents: Vec<(String, Vec<u8>)>,
}

/// All that the view shows.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Layers, each after its parent.
    pub(super) layers: Vec<ViewLayer>,
    pub(super) images: Vec<ViewImage>,
    pub(super) hidden: Vec<HiddenImage>,
}

const EROFS: &str = "its layers are EROFS files, and podman takes directories: `imagelet convert --to dir` makes them";
const NOT_WHOLE: &str = "layers of it are damaged or missing: pull it again";
const UNREADABLE: &str = "its records or documents cannot be read: `imagelet check` says more";

impl Contents {
    /// Reads all images.
    pub(super) fn gather(
        records: &impl Records,
        layers: &Layers,
        facts: &mut LayerFacts<'_>,
    ) -> Result<Self, StoreError> {
        let known: BTreeMap<LayerId, Layer> = records
            .layer_rows()?
            .into_iter()
            .filter_map(|(id, entry)| Some((id, entry.ok()?)))
            .filter(|(_, entry)| !entry.damaged)
            .map(|(id, entry)| (id, entry.layer(id)))
            .collect();
        let (mut contents, mut seen) = (Self::default(), BTreeSet::new());
        for (text, entry) in records.image_rows()? {
            let Ok(id) = text.parse::<Digest>() else { continue };
            let image = entry.and_then(|entry| RecordedImage::read(records, &id, entry));
            let Ok(Some(image)) = image else {
                contents.hidden.push(HiddenImage { id: id.to_string(), names: Vec::new(), why: UNREADABLE.to_owned() });
                continue;
            };
            match Usable::check(image, &known, layers, facts.is_mountable) {
                Ok(usable) => contents.add(&usable, &mut seen, facts.size_of),
                Err(hidden) => contents.hidden.push(hidden),
            }
        }
        Ok(contents)
    }

    fn add(&mut self, usable: &Usable, seen: &mut BTreeSet<String>, size_of: &mut dyn FnMut(&Layer) -> u64) {
        let mut links: BTreeMap<LayerId, String> = BTreeMap::new();
        let mut parent: Option<String> = None;
        for (at, layer) in usable.layers.iter().enumerate() {
            let id = layer_id(parent.as_deref(), &layer.diff_id);
            let link = link_name(&id);
            links.insert(layer.id, link.clone());
            if seen.insert(id.clone()) {
                // The layers that overlayfs is to have, which takes none twice.
                let stack = stack(&usable.layers[..=at]);
                let lower = stack.iter().rev().filter(|below| **below != layer.id);
                let lower = lower.filter_map(|below| links.get(below).cloned()).collect();
                let blob =
                    usable.manifest.layers.get(at).filter(|_| usable.manifest.layers.len() == usable.layers.len());
                let row = PodmanLayerRow {
                    id: id.clone(),
                    parent,
                    created: time(None),
                    compressed_diff_digest: blob.map(|blob| blob.digest.clone()),
                    compressed_size: blob.map(|blob| blob.size),
                    diff_digest: layer.diff_id.clone(),
                    diff_size: size_of(layer),
                    compression: blob.map(|blob| compression(&blob.media_type)),
                };
                self.layers.push(ViewLayer { row, link, lower, layer: layer.id, is_file: !layer.shape.is_dir() });
            }
            parent = Some(id);
        }
        self.images.push(usable.row(parent));
    }

    /// Returns true if a layer is an EROFS file.
    pub(super) fn has_files(&self) -> bool {
        self.layers.iter().any(|layer| layer.is_file)
    }

    /// Leaves out the layers of these ids, the layers on top of them, and their images, each for the reason of its layer.
    pub(super) fn leave_out(&mut self, mut failed: BTreeMap<String, String>) {
        if failed.is_empty() {
            return;
        }
        let Self { layers, images, hidden } = self;
        layers.retain(|layer| {
            let below = layer.row.parent.as_ref().and_then(|parent| failed.get(parent)).cloned();
            if let Some(why) = below {
                failed.entry(layer.row.id.clone()).or_insert(why);
            }
            !failed.contains_key(&layer.row.id)
        });
        images.retain(|image| {
            let why = image.row.top_layer.as_ref().and_then(|layer| failed.get(layer));
            if let Some(why) = why {
                let (id, names) = (format!("sha256:{}", image.row.id), image.row.names.clone());
                hidden.push(HiddenImage { id, names, why: why.clone() });
            }
            why.is_none()
        });
    }
}

/// An image with its documents.
struct RecordedImage {
    id: Digest,
    entry: ImageEntry,
    config: Vec<u8>,
    manifest: Vec<u8>,
    index: Option<Vec<u8>>,
}

impl RecordedImage {
    /// Reads the documents; `None` where one is missing.
    fn read(records: &impl Records, id: &Digest, entry: ImageEntry) -> Result<Option<Self>, StoreError> {
        let document = |kind| records.document(id, kind);
        let index = document(DocumentKind::Index)?;
        let (config, manifest) = (document(DocumentKind::Config)?, document(DocumentKind::Manifest)?);
        let whole = config.zip(manifest);
        Ok(whole.map(|(config, manifest)| Self { id: id.clone(), entry, config, manifest, index }))
    }

    /// All names by which it may be used.
    fn names(&self) -> Vec<String> {
        let names = self.entry.tags.iter().chain(&self.entry.repo_digests);
        names.filter(|name| self.entry.may_use(name)).cloned().collect()
    }
}

/// An image that podman can use.
struct Usable {
    image: RecordedImage,
    config: ImageConfig,
    manifest: Manifest,
    /// Lowest first.
    layers: Vec<Layer>,
}

impl Usable {
    fn check(
        image: RecordedImage,
        known: &BTreeMap<LayerId, Layer>,
        all: &Layers,
        is_mountable: &mut dyn FnMut(LayerId) -> bool,
    ) -> Result<Self, HiddenImage> {
        let hidden = |image: &RecordedImage, why: &str| HiddenImage {
            id: image.id.to_string(),
            names: image.names(),
            why: why.to_owned(),
        };
        let layers: Option<Vec<Layer>> = image.entry.layers.iter().map(|id| known.get(id).cloned()).collect();
        let Some(layers) = layers.filter(|layers| layers.iter().all(|layer| all.has_layer(layer.id))) else {
            return Err(hidden(&image, NOT_WHOLE));
        };
        if layers.iter().any(|layer| !layer.shape.is_dir() && !is_mountable(layer.id)) {
            return Err(hidden(&image, EROFS));
        }
        let config = ImageConfig::parse(&image.config).ok();
        let manifest = Document::parse(&image.manifest, Some(&image.entry.manifest_media_type)).ok();
        match (config, manifest) {
            (Some(config), Some(Document::Manifest(manifest))) => Ok(Self { image, config, manifest, layers }),
            _ => Err(hidden(&image, UNREADABLE)),
        }
    }

    fn row(&self, top_layer: Option<String>) -> ViewImage {
        let (image, entry) = (&self.image, &self.image.entry);
        let mut documents = vec![
            (image.id.to_string(), image.config.clone()),
            ("manifest".to_owned(), image.manifest.clone()),
            (format!("manifest-{}", entry.manifest_digest), image.manifest.clone()),
        ];
        if let (Some(index), Some(digest)) = (&image.index, &entry.index_digest)
            && *digest != entry.manifest_digest
        {
            documents.push((format!("manifest-{digest}"), index.clone()));
        }
        let row = PodmanImageRow {
            id: image.id.hex().to_owned(),
            digest: entry.manifest_digest.clone(),
            names: image.names(),
            top_layer,
            metadata: "{}",
            big_data_names: documents.iter().map(|(key, _)| key.clone()).collect(),
            big_data_sizes: documents.iter().map(|(key, bytes)| (key.clone(), bytes.len())).collect(),
            big_data_digests: documents.iter().map(|(key, bytes)| (key.clone(), Digest::sha256(bytes))).collect(),
            created: time(self.config.created.as_deref()),
        };
        ViewImage { row, documents }
    }
}
