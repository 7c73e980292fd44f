//! Images from and to files: OCI layouts (a directory or a tar of it) and docker archives. Imports go the way of every
//! pull, with a file in the place of the registry; exports rebuild the layers bit for bit from what is on disk.

pub(crate) mod archive;
mod directory;
mod docker;
mod export;
mod export_docker;
mod import;
pub(crate) mod input;
pub(crate) mod layout;
mod output;
mod pick;
mod platforms;
mod selection;
pub(crate) mod tar;
mod within;

use cri_api::{Error, Kind, Result};
use oci::{Descriptor, media_type};
use serde_json::{Map, Value, json};
pub use within::open_within;

/// The bytes of a manifest that had to be made: config and layers, and annotations where there are any.
fn manifest_bytes(config: &Descriptor, layers: &[Descriptor], annotations: Option<Value>) -> Result<Vec<u8>> {
    bytes_of(media_type::OCI_MANIFEST, config, layers, annotations)
}

/// The same as a docker manifest.
fn docker_manifest_bytes(config: &Descriptor, layers: &[Descriptor]) -> Result<Vec<u8>> {
    bytes_of(media_type::DOCKER_MANIFEST, config, layers, None)
}

fn bytes_of(kind: &str, config: &Descriptor, layers: &[Descriptor], annotations: Option<Value>) -> Result<Vec<u8>> {
    let mut manifest = Map::new();
    manifest.insert("schemaVersion".into(), json!(2));
    manifest.insert("mediaType".into(), json!(kind));
    manifest.insert("config".into(), to_value(config)?);
    manifest.insert("layers".into(), Value::Array(layers.iter().map(to_value).collect::<Result<_>>()?));
    if let Some(annotations) = annotations {
        manifest.insert("annotations".into(), annotations);
    }
    Ok(Value::Object(manifest).to_string().into_bytes())
}

fn to_value(descriptor: &Descriptor) -> Result<Value> {
    serde_json::to_value(descriptor).map_err(|e| Error::new(Kind::Internal, format!("write a descriptor: {e}")))
}
