//! Images from and to files: OCI layouts (a directory or a tar of it) and docker archives. Imports go the way of every
//! pull, with a file in the place of the registry; exports rebuild the layers bit for bit from what is on disk.
//!
//! Archives that are compressed as a whole are refused by name: their blobs could not be found without unpacking them
//! first, and layers inside may be compressed anyway.

pub(crate) mod archive;
mod docker;
mod export;
mod import;
mod layout;
mod output;
pub(crate) mod tar;
mod within;

use cri_api::{Error, Kind, ProgressSink, Result};
use oci::{Descriptor, Reference, media_type};
use serde_json::{Map, Value, json};
pub use within::open_within;

/// How to import.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// The name that the image gets in place of those in the archive, which must then have one image.
    pub name: Option<Reference>,
    /// Where progress is told, image after image.
    pub progress: ProgressSink,
}

/// An image that was imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedImage {
    /// Its image id.
    pub id: String,
    /// The names under which it was recorded, in normal form; none where neither archive nor caller gave one.
    pub names: Vec<String>,
}

/// What an export writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A directory with an OCI image layout.
    OciLayout,
    /// A tar file of an OCI image layout.
    OciArchive,
    /// A tar file as `docker save` writes it.
    DockerArchive,
}

/// How the layers of an export are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compress {
    /// As they were pulled, and with the manifest that was pulled, where all blobs of an image were kept; not at all where
    /// one is missing, and in docker archives.
    #[default]
    AsPulled,
    /// Not at all: exact and quick.
    No,
    /// With gzip.
    Gzip,
    /// With zstd.
    Zstd,
}

/// How to export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportOptions {
    /// What is written.
    pub format: Format,
    /// How layers are compressed. Docker archives take none.
    pub compress: Compress,
}

impl From<Format> for ExportOptions {
    fn from(format: Format) -> Self {
        Self { format, compress: Compress::AsPulled }
    }
}

/// The bytes of a manifest that had to be made: config and layers, and annotations where there are any.
fn manifest_bytes(config: &Descriptor, layers: &[Descriptor], annotations: Option<Value>) -> Result<Vec<u8>> {
    let mut manifest = Map::new();
    manifest.insert("schemaVersion".into(), json!(2));
    manifest.insert("mediaType".into(), json!(media_type::OCI_MANIFEST));
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
