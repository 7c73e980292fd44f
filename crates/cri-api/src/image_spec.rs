//! [`ImageSpec`]: the name or id by which CRI means an image. Both services use it: pulls and lookups of images, and the configurations and
//! statuses of containers and their mounts.

use std::collections::BTreeMap;

use oci::ReferenceOrId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Name or id of an image. Lookups take a full or short image id with or without `sha256:`, a name with tag, digest or
/// neither, in any spelling that normalises to a recorded name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageSpec {
    /// Id or name.
    pub image: String,
    /// Annotations for the runtime.
    pub annotations: BTreeMap<String, String>,
    /// The name as the user wrote it.
    pub user_specified_image: String,
    /// Runtime handler for the image; empty for the default.
    pub runtime_handler: String,
    /// Image reference returned earlier by the runtime, for image volumes.
    pub image_ref: String,
}

impl ImageSpec {
    /// Creates a specification with only the ID or name.
    #[must_use]
    pub fn new(image: impl Into<String>) -> Self {
        Self { image: image.into(), ..Self::default() }
    }

    /// Parses the name or id. A text that is neither finds no image.
    #[must_use]
    pub fn reference_or_id(&self) -> ReferenceOrId {
        ReferenceOrId::parse(&self.image)
    }
}

impl From<&str> for ImageSpec {
    fn from(image: &str) -> Self {
        Self::new(image)
    }
}
