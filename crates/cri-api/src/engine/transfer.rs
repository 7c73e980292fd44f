//! Plain types of imports and exports.

use crate::ProgressSink;
use oci::{Platform, Reference};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Platforms of the images to import or to export.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Platforms {
    /// An import takes the engine's own platform, an export the image that is named.
    #[default]
    Own,
    /// Each of these, as objects with `os`, `architecture` and `variant`. All of them must be present.
    These(#[schemars(with = "Vec<std::collections::BTreeMap<String, serde_json::Value>>")] Vec<Platform>),
    /// Every platform that there is.
    All,
}

/// Options of an import.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// The name that the image gets in place of those in the archive, which must then hold one image.
    pub name: Option<Reference>,
    /// The images to import: names or tags as the archive has them, digests of manifests, or for docker archives
    /// image ids. None means every image.
    pub images: Vec<String>,
    /// The platforms to import.
    pub platforms: Platforms,
    /// Receives progress, image after image.
    pub progress: ProgressSink,
}

/// Result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ImportReport {
    /// The images, in the order of the archive.
    pub images: Vec<ImportedImage>,
    /// Entries of the archive that are not images.
    pub passed_by: Vec<PassedBy>,
}

/// An imported image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImportedImage {
    /// Image id.
    pub id: String,
    /// Names recorded for the image, in normal form; empty if neither the archive nor the request gave one.
    pub names: Vec<String>,
    /// Platform in the image config.
    #[serde(default)]
    pub platform: String,
}

/// An entry of an archive that was skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PassedBy {
    /// Name of the entry in the archive, otherwise its digest.
    pub entry: String,
    /// Reason in words.
    pub why: String,
}

/// The documents of an image as they were pulled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageDocuments {
    /// Image id.
    pub id: String,
    /// Bytes of the config, whose digest is the image ID, in base64. Strings in it need not be UTF-8.
    #[serde(with = "oci::base64_bytes")]
    #[schemars(with = "String")]
    pub config: Vec<u8>,
    /// Bytes of the manifest, in base64.
    #[serde(with = "oci::base64_bytes")]
    #[schemars(with = "String")]
    pub manifest: Vec<u8>,
    /// Media type of the manifest.
    pub manifest_media_type: String,
    /// Names with a tag.
    pub tags: Vec<String>,
    /// Names with a digest.
    pub repo_digests: Vec<String>,
    /// Bytes of the files of each layer, lowest first.
    pub layer_bytes: Vec<u64>,
}

/// Format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Format {
    /// A directory with an OCI image layout.
    OciLayout,
    /// A tar file of an OCI image layout.
    OciArchive,
    /// A tar file as `docker save` writes it.
    DockerArchive,
    /// A directory with one image and a docker manifest, as `podman save --format docker-dir` and skopeo's `dir:` write it.
    DockerDirectory,
}

/// Compression of the layers of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Compress {
    /// As pulled, and with the pulled manifest, if all blobs of an image were kept; no compression if one is missing, and in
    /// docker archives.
    #[default]
    AsPulled,
    /// As pulled, if all blobs of an image were kept; otherwise gzip: for registries.
    AsPulledOrGzip,
    /// No compression: exact and quick.
    No,
    /// With gzip.
    Gzip,
    /// With zstd.
    Zstd,
}

/// Options of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportOptions {
    /// Content of the archive.
    pub format: Format,
    /// Compression of layers. Docker archives have none.
    pub compress: Compress,
    /// The platforms to write of each image.
    pub platforms: Platforms,
}

impl From<Format> for ExportOptions {
    fn from(format: Format) -> Self {
        Self { format, compress: Compress::AsPulled, platforms: Platforms::Own }
    }
}
