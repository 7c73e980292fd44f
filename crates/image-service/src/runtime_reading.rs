//! Reads what is in a runtime's store for commands: the layers of an image, held for as long as they are read, and the bytes that they take.
//! Changes nothing. Called by [`crate::runtime_images`].

use cri_api::engine::runtime_store::{HeldLayers, RuntimeStore};
use cri_api::{Error, ImageStatus, Kind, Result};
use oci::Digest;
use serde::Deserialize;

use crate::destination::image::chain;

/// The parts of a verbose status that name layers.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Info {
    image_spec: ImageConfig,
}

#[derive(Deserialize)]
struct ImageConfig {
    rootfs: RootFs,
}

#[derive(Deserialize)]
struct RootFs {
    #[serde(default)]
    diff_ids: Option<Vec<Digest>>,
}

/// Returns the diff IDs of an image, lowest first. `status` is verbose.
fn diff_ids(status: &ImageStatus) -> Result<Vec<Digest>> {
    let text = status.info.get("info").map(String::as_str).unwrap_or_default();
    let info: Info = serde_json::from_str(text)
        .map_err(|error| Error::new(Kind::Internal, format!("the runtime reports no layers of the image: {error}")))?;
    Ok(info.image_spec.rootfs.diff_ids.unwrap_or_default())
}

/// Returns the bytes on disk of the layers with these diff IDs, lowest first.
pub(crate) async fn layer_bytes(store: &dyn RuntimeStore, diff_ids: &[Digest]) -> Result<Vec<u64>> {
    let mut all = Vec::with_capacity(diff_ids.len());
    for link in chain(diff_ids) {
        all.push(store.snapshot_bytes(&link.chain_id.to_string()).await?);
    }
    Ok(all)
}

/// Holds the layers of the image with this verbose status.
pub(crate) async fn hold_layers(store: &dyn RuntimeStore, status: &ImageStatus) -> Result<HeldLayers> {
    let diff_ids = diff_ids(status)?;
    let Some(top) = chain(&diff_ids).pop() else { return Ok(HeldLayers::new(Vec::new(), None)) };
    let top = top.chain_id;
    let Some(hold) = store.hold_layers(&top).await? else {
        let message = "a layer of the image is missing or damaged: pull the image again";
        return Err(Error::new(Kind::FailedPrecondition, message));
    };
    let layers = hold.lower_layers(&top).await;
    match layers {
        Ok(layers) if layers.len() == diff_ids.len() => {
            Ok(HeldLayers::new(diff_ids.into_iter().rev().zip(layers).collect(), Some(hold)))
        }
        layers => {
            let ended = hold.end().await;
            let layers = layers?;
            ended?;
            let message = format!("the image has {} layers, and its snapshot {}", diff_ids.len(), layers.len());
            Err(Error::new(Kind::Internal, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_those_of_the_config() {
        let status = |info: &str| ImageStatus {
            info: std::collections::BTreeMap::from([("info".to_owned(), info.to_owned())]),
            ..ImageStatus::default()
        };
        let (low, high) = (Digest::sha256(b"low"), Digest::sha256(b"high"));
        let text = format!(r#"{{"chainID": "", "imageSpec": {{"rootfs": {{"diff_ids": ["{low}", "{high}"]}}}}}}"#);
        let found = diff_ids(&status(&text)).expect("two");
        assert_eq!(found, [low.clone(), high.clone()]);
        let chain: Vec<Digest> = chain(&found).into_iter().map(|link| link.chain_id).collect();
        assert_eq!(chain, [low.clone(), oci::chain_id(Some(&low), &high)]);
        let scratch = diff_ids(&status(r#"{"imageSpec": {"rootfs": {"diff_ids": null}}}"#));
        assert_eq!(scratch, Ok(Vec::new()));
        assert!(diff_ids(&ImageStatus::default()).is_err());
    }
}
