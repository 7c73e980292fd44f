//! [`RuntimeLayers`]: which layers each image of a runtime has and what they take on disk, so that a removal is counted with what it
//! really frees. Neither ever changes for an image or a layer: each is asked for once.

use std::collections::{BTreeMap, HashMap};

use cri_api::engine::runtime_store::RuntimeStore;
use cri_api::engine::{ImageLayers, LayersOf};
use cri_api::{ImageService, ImageSpec, Result};
use tokio::sync::Mutex;

use crate::destination::runtime_store::chain_id;

/// See the file's head.
#[derive(Default)]
pub(crate) struct RuntimeLayers(Mutex<Answers>);

#[derive(Default)]
struct Answers {
    /// The top snapshot of each image, by image id; empty: it has no layers, or the runtime does not say.
    tops: HashMap<String, String>,
    /// Bytes of each snapshot of `store`, by name: two snapshotters have different snapshots under one name.
    bytes: HashMap<String, u64>,
    store: String,
}

impl RuntimeLayers {
    pub(crate) async fn of_all(&self, images: &dyn ImageService, store: &dyn RuntimeStore) -> Result<ImageLayers> {
        let listed = images.list_images(None).await?;
        let below = store.snapshots().await?;
        let mut answers = self.0.lock().await;
        if answers.store != store.name() {
            answers.bytes.clear();
            answers.store = store.name();
        }
        answers.tops.retain(|id, _| listed.iter().any(|image| image.id == *id));
        answers.bytes.retain(|name, _| below.contains_key(name));
        let (mut all, mut indices) = (ImageLayers::default(), BTreeMap::new());
        for image in listed {
            let top = match answers.tops.get(&image.id) {
                Some(top) => top.clone(),
                None => {
                    let status = images.image_status(&ImageSpec::new(image.id.clone()), true).await?;
                    let top = chain_id(&status).unwrap_or_default();
                    answers.tops.insert(image.id.clone(), top.clone());
                    top
                }
            };
            let (mut of, mut at) = (LayersOf::default(), top);
            while let Some(parent) = below.get(&at) {
                let index = match indices.get(&at) {
                    Some(&index) => index,
                    None => {
                        let bytes = match answers.bytes.get(&at) {
                            Some(&bytes) => bytes,
                            None => store.snapshot_bytes(&at).await?,
                        };
                        answers.bytes.insert(at.clone(), bytes);
                        all.layers.push(bytes);
                        let index = u32::try_from(all.layers.len() - 1).unwrap_or(u32::MAX);
                        indices.insert(at.clone(), index);
                        index
                    }
                };
                of.layers.push(index);
                at.clone_from(parent);
            }
            all.images.insert(image.id, of);
        }
        Ok(all)
    }
}
