//! The images that an export writes: looked up by what a person named, and for the platforms that were asked for. Reads records,
//! writes nothing. Called by the export.

use std::collections::{BTreeMap, BTreeSet};

use cri_api::Result;
use cri_api::engine::Platforms;
use oci::{Digest, Document, ImageConfig, Manifest, ReferenceOrId};
use store::{ImageRecord, Layer, Store};

use crate::error::{self, damaged};
use crate::pull::choose::no_match;

/// An image to export.
pub(super) struct Picked {
    pub(super) record: ImageRecord,
    pub(super) config: ImageConfig,
    pub(super) manifest: Manifest,
    pub(super) layers: Vec<Layer>,
}

/// The images that share names: one, or one for each platform.
pub(super) struct PickedGroup {
    pub(super) images: Vec<Picked>,
    pub(super) names: BTreeSet<String>,
    /// The index by which they were pulled.
    pub(super) index: Option<Vec<u8>>,
}

/// Looks images up.
pub(super) struct Picker<'a> {
    pub(super) store: &'a Store,
    pub(super) platforms: &'a Platforms,
}

impl Picker<'_> {
    /// Looks the images up; several names of one image are one group.
    pub(super) fn pick(&self, images: &[ReferenceOrId]) -> Result<Vec<PickedGroup>> {
        let mut picked: BTreeMap<Vec<Digest>, PickedGroup> = BTreeMap::new();
        for named in images {
            let text = named.as_str();
            let record = self.store.resolve(named).map_err(|e| error::from_resolve(self.store.root(), &e))?;
            let record = record.ok_or_else(|| error::absent(named))?;
            let name = named.reference().map(|reference| reference.clone().canonical().to_string());
            let names = match name.filter(|name| record.tags.contains(name)) {
                Some(name) => BTreeSet::from([name]),
                None => record.tags.clone(),
            };
            let index = record.index.clone();
            let records = self.of_platforms(record, text)?;
            let ids = records.iter().map(|record| record.id.clone()).collect();
            if let Some(before) = picked.get_mut(&ids) {
                before.names.extend(names);
                continue;
            }
            let images = records.into_iter().map(|record| self.picked(record, text)).collect::<Result<_>>()?;
            picked.insert(ids, PickedGroup { images, names, index });
        }
        Ok(picked.into_values().collect())
    }

    fn picked(&self, record: ImageRecord, text: &str) -> Result<Picked> {
        if !self.store.image_is_whole(&record) {
            return Err(damaged(format!("image {text:?} has lost a layer: pull it again")));
        }
        let id = &record.id;
        let config = ImageConfig::parse(&record.config).map_err(|e| damaged(format!("image {id}: {e}")))?;
        let Ok(Document::Manifest(manifest)) = Document::parse(&record.manifest, Some(&record.manifest_media_type))
        else {
            return Err(damaged(format!("the manifest of image {id} cannot be read")));
        };
        let layers = self.store.image_layers(&record).map_err(|e| error::from_store(self.store.root(), &e))?;
        Ok(Picked { config, manifest, layers, record })
    }

    /// The images for the wanted platforms: the named one, and those that its index names and that are here.
    fn of_platforms(&self, named: ImageRecord, text: &str) -> Result<Vec<ImageRecord>> {
        if *self.platforms == Platforms::Own {
            return Ok(vec![named]);
        }
        let failed = |e| error::from_store(self.store.root(), &e);
        let index = named.index.as_ref().and_then(|bytes| match Document::parse(bytes, None) {
            Ok(Document::Index(index)) => Some(index),
            _ => None,
        });
        let mut records = vec![named];
        if let Some(index) = index {
            let of_index: BTreeSet<Digest> = index.manifests.into_iter().map(|descriptor| descriptor.digest).collect();
            let siblings = self.store.images().map_err(failed)?.into_iter();
            let id = records[0].id.clone();
            records.extend(siblings.filter(|image| image.id != id && of_index.contains(&image.manifest_digest)));
        }
        let platform = |record: &ImageRecord| ImageConfig::parse(&record.config).ok().map(|config| config.platform);
        let Platforms::These(wanted) = self.platforms else { return Ok(records) };
        let mut chosen: Vec<ImageRecord> = Vec::new();
        for wanted in wanted {
            let rank = |record: &&ImageRecord| platform(record).and_then(|platform| wanted.rank(&platform));
            let best = records.iter().filter(|record| rank(record).is_some()).min_by_key(rank);
            let best = best.ok_or_else(|| {
                let offered = records.iter().filter_map(platform).map(|p| p.normalized().to_string()).collect();
                no_match(&format!("image {text:?}"), wanted, &offered)
            })?;
            if chosen.iter().all(|record| record.id != best.id) {
                chosen.push(best.clone());
            }
        }
        Ok(chosen)
    }
}
