//! [`Image`] and [`ImageDetails`]: an image of the store as plain values, parsed from the answers of the image service.

use cri_api::engine::ImageDocuments;
use oci::{Digest, ImageConfig, Reference};

use crate::error::{Error, ErrorKind, Result};

/// An image that the store has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Image {
    /// The image ID: the digest of the config.
    pub id: Digest,
    /// References with a tag, sorted.
    pub tags: Vec<Reference>,
    /// References with the digest of the manifest or index that was pulled, sorted.
    pub digests: Vec<Reference>,
    /// Bytes on disk, with the layers that other images share.
    pub size: u64,
    /// Nanoseconds since 1970 at the pull to this store.
    pub pulled_at: Option<i64>,
}

/// An image with its config.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageDetails {
    /// The image.
    pub image: Image,
    /// Entry point, environment, user, labels and platform.
    pub config: ImageConfig,
    /// Bytes of the files of each layer, lowest first.
    pub layer_bytes: Vec<u64>,
}

impl Image {
    pub(crate) fn of_service(image: cri_api::Image) -> Result<Self> {
        let parse = |names: &[String]| names.iter().map(|name| Ok(name.parse()?)).collect::<Result<Vec<Reference>>>();
        Ok(Self {
            id: image_id(&image.id)?,
            tags: parse(&image.repo_tags)?,
            digests: parse(&image.repo_digests)?,
            size: image.size,
            pulled_at: image.pulled_at,
        })
    }
}

/// Parses the image ID in an answer of the image service.
pub(crate) fn image_id(text: &str) -> Result<Digest> {
    let unknown =
        |error: oci::DigestError| Error::caused(ErrorKind::Internal, &format!("read image ID {text:?}"), &error);
    text.parse().map_err(unknown)
}

impl ImageDetails {
    pub(crate) fn new(image: Image, documents: &ImageDocuments) -> Result<Self> {
        let damaged = |error: oci::ConfigError| {
            Error::caused(ErrorKind::InvalidContent, &format!("read the config of image {}", image.id), &error)
        };
        let config = ImageConfig::parse(&documents.config).map_err(damaged)?;
        Ok(Self { image, config, layer_bytes: documents.layer_bytes.clone() })
    }
}
