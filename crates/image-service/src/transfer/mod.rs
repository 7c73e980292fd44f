//! Images from and to files: OCI layouts (a directory or a tar of it) and docker archives. Imports go the way of every
//! pull, with a file in the place of the registry; exports rebuild the layers bit for bit.

use std::path::Path;

use cri_api::Result;
use oci::Reference;

use crate::engine::Engine;

/// How to import.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// The name that the image gets in place of those in the archive, which must then have one image.
    pub name: Option<Reference>,
}

/// An image that was imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedImage {
    /// Its image id.
    pub id: String,
    /// The names under which it was recorded; none where the archive had none.
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
    /// Not at all: exact and quick.
    #[default]
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
    /// How layers are compressed; docker archives take none.
    pub compress: Compress,
}

impl From<Format> for ExportOptions {
    fn from(format: Format) -> Self {
        Self { format, compress: Compress::No }
    }
}

impl Engine {
    /// Imports every image of an archive.
    pub async fn import(&self, path: &Path, options: ImportOptions) -> Result<Vec<ImportedImage>> {
        let _ = (path, options);
        Err(cri_api::Error::new(cri_api::Kind::Unimplemented, "import"))
    }

    /// Exports images.
    pub async fn export(&self, images: &[String], path: &Path, options: impl Into<ExportOptions>) -> Result<()> {
        let _ = (images, path, options.into());
        Err(cri_api::Error::new(cri_api::Kind::Unimplemented, "export"))
    }
}
