//! Plain types of the image service. Shapes and meanings are those of CRI `runtime.v1`; [`BeforeVisible`] is a step that the image
//! manager wants to have done before an image appears, and not sooner than it must be.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use oci::RegistryAuth;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ImageSpec, PodSandboxConfig, ProgressSink, Result};

/// An image that is present.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Image {
    /// Image id: `sha256:` and the digest of the config.
    pub id: String,
    /// `name:tag` of every tag, in normal form, sorted.
    pub repo_tags: Vec<String>,
    /// `name@digest` for every manifest digest by which it was pulled, sorted.
    pub repo_digests: Vec<String>,
    /// Size in bytes, always above 0: manifest, config and unpacked layers, shared ones included.
    pub size: u64,
    /// User id that the image runs as, where it is a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<i64>,
    /// User name that the image runs as, where it is a name; otherwise empty.
    pub username: String,
    /// Specification of the image in the pull; annotations may be filled from the manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<ImageSpec>,
    /// True if garbage collection must not remove the image. An explicit removal still succeeds.
    pub pinned: bool,
    /// Time of the pull to this node, in nanoseconds since the epoch, if the service knows it. CRI has no field for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pulled_at: Option<i64>,
}

/// Restricts a list of images.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageFilter {
    /// Only the image that this resolves to, if any; of a repository without tag and digest, the images of all its names.
    /// `None` or an empty name: all.
    pub image: Option<ImageSpec>,
}

/// Status of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImageStatus {
    /// The image; null if it is not present, which is no error.
    pub image: Option<Image>,
    /// With `verbose`: key `info` holds JSON with `chainID` and `imageSpec` (the image config). Otherwise empty.
    pub info: BTreeMap<String, String>,
}

/// Request of [`ImageService::pull_image`](crate::ImageService::pull_image).
#[derive(Clone, Debug, Default)]
pub struct PullImageRequest {
    /// The image to pull.
    pub image: ImageSpec,
    /// Credential to use; `None` is anonymous.
    pub auth: Option<RegistryAuth>,
    /// The sandbox for which it is pulled, where there is one.
    pub sandbox: Option<PodSandboxConfig>,
    /// Receives progress. CRI has no field for it, so a remote runtime reports none.
    pub progress: ProgressSink,
    /// Work that must be done before the image may appear. An implementation that cannot know that moment does the work at once; one
    /// that finds the image already present does not do it.
    pub before_visible: BeforeVisible,
}

impl PullImageRequest {
    /// Creates an anonymous pull of a name.
    #[must_use]
    pub fn new(image: impl Into<String>) -> Self {
        Self { image: ImageSpec::new(image), ..Self::default() }
    }
}

type Done = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// Work that every pull does before it makes an image visible; it may run any number of times. The default does
/// nothing.
#[derive(Clone, Default)]
pub struct BeforeVisible(Option<Arc<dyn Fn() -> Done + Send + Sync>>);

impl BeforeVisible {
    /// Calls `work`. It must be no loss to call it again.
    #[must_use]
    pub fn new<F: Future<Output = Result<()>> + Send + 'static>(work: impl Fn() -> F + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(move || Box::pin(work()))))
    }

    /// Answers when it is done.
    ///
    /// # Errors
    /// Error that prevented it. The image must not appear then.
    pub async fn done(&self) -> Result<()> {
        match &self.0 {
            Some(work) => work().await,
            None => Ok(()),
        }
    }
}

impl fmt::Debug for BeforeVisible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "BeforeVisible(set)" } else { "BeforeVisible(none)" })
    }
}
