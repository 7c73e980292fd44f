//! [`CrioIds`]: an image service for the clients of CRI-O, which have image IDs without `sha256:`. Converts IDs at the edge, in answers
//! and nowhere else: our services take both forms in requests. Called by the binary, as the outermost service of the CRI socket.

use std::sync::Arc;

use async_trait::async_trait;
use cri_api::{FsInfo, Image, ImageFilter, ImageService, ImageSpec, ImageStatus, PullImageRequest, Result};

/// The algorithm of image IDs.
const ALGORITHM: &str = "sha256:";
/// Digits of an image ID.
const DIGITS: usize = 64;

/// An image service with IDs in the form of CRI-O.
pub struct CrioIds(Arc<dyn ImageService>);

impl CrioIds {
    /// Converts the answers of `service`.
    #[must_use]
    pub fn new(service: Arc<dyn ImageService>) -> Self {
        Self(service)
    }
}

impl std::fmt::Debug for CrioIds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CrioIds").finish_non_exhaustive()
    }
}

/// Returns an ID without its algorithm; any other text as it is.
pub(crate) fn bare_id(text: &str) -> &str {
    text.strip_prefix(ALGORITHM).filter(|digits| is_id(digits)).unwrap_or(text)
}

/// Returns an ID with its algorithm; any other text as it is.
pub(crate) fn whole_id(text: &str) -> String {
    if is_id(text) { format!("{ALGORITHM}{text}") } else { text.to_owned() }
}

fn is_id(text: &str) -> bool {
    text.len() == DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn bare(image: Image) -> Image {
    Image { id: bare_id(&image.id).to_owned(), ..image }
}

#[async_trait]
impl ImageService for CrioIds {
    async fn list_images(&self, filter: Option<&ImageFilter>) -> Result<Vec<Image>> {
        Ok(self.0.list_images(filter).await?.into_iter().map(bare).collect())
    }

    async fn image_status(&self, image: &ImageSpec, verbose: bool) -> Result<ImageStatus> {
        let status = self.0.image_status(image, verbose).await?;
        Ok(ImageStatus { image: status.image.map(bare), ..status })
    }

    async fn pull_image(&self, request: PullImageRequest) -> Result<String> {
        Ok(bare_id(&self.0.pull_image(request).await?).to_owned())
    }

    async fn remove_image(&self, image: &ImageSpec) -> Result<()> {
        self.0.remove_image(image).await
    }

    async fn image_fs_info(&self) -> Result<FsInfo> {
        self.0.image_fs_info().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_are_converted() {
        let digits = "ab".repeat(32);
        let whole = format!("sha256:{digits}");
        assert_eq!(bare_id(&whole), digits);
        assert_eq!(bare_id(&digits), digits);
        assert_eq!(whole_id(&digits), whole);
        assert_eq!(whole_id(&whole), whole);
        for other in ["", "sha256:ab", "r.example/app:1", &format!("r.example/app@{whole}"), &digits.to_uppercase()] {
            assert_eq!((bare_id(other), whole_id(other).as_str()), (other, other));
        }
    }
}
