//! Plain types of a conversion of layers from one shape on disk to another. Asked for with
//! [`ImageEngine::convert_images`](crate::engine::ImageEngine::convert_images).

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Format of a layer on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LayerShape {
    /// A directory tree.
    Dir,
    /// An EROFS file.
    Erofs,
}

impl LayerShape {
    /// All there are.
    pub const ALL: [Self; 2] = [Self::Erofs, Self::Dir];

    /// Returns the name in configurations and on command lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Dir => "dir",
            Self::Erofs => "erofs",
        }
    }

    /// Returns the shape of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|shape| shape.name() == name)
    }
}

impl fmt::Display for LayerShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The images to convert, and the form they get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConvertRequest {
    /// The shape that all layers are to have.
    pub to: LayerShape,
    /// Images by name or id; none means all.
    pub images: Vec<String>,
}

/// Result of a conversion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConvertReport {
    /// An entry for each image, in the order of the request.
    pub images: Vec<ConvertedImage>,
}

/// Result of the conversion of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConvertedImage {
    /// Image id.
    pub id: String,
    /// Number of converted layers. Layers that had the shape already, or that belong to an earlier image of the report as well,
    /// do not count.
    pub layers: u64,
    /// Bytes of the converted layers on disk before the conversion.
    pub bytes_before: u64,
    /// Bytes of the converted layers on disk after the conversion.
    pub bytes_after: u64,
    /// Inodes of the converted layers before the conversion.
    pub inodes_before: u64,
    /// Inodes of the converted layers after the conversion.
    pub inodes_after: u64,
    /// Layers that were not converted.
    pub left: Vec<LeftLayer>,
    /// Error if no layer was converted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A layer that was not converted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeftLayer {
    /// Diff ID of the layer.
    pub diff_id: String,
    /// Reason in words.
    pub why: String,
}
