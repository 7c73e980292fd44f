//! [`RequestedImage`]: the image of a request, parsed once. The manager, its back-off and the puller get this type and parse no text.

use oci::Reference;

use crate::{EnsureImageError, EnsureImageRequest};

/// The image of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestedImage {
    /// The name that is sent to the runtime: with its default tag but otherwise as the user spelled it, so that the runtime applies
    /// its own default registry.
    pub(crate) sent: String,
    /// The parsed name; `None` if it has a digest of an algorithm that only the runtime may know.
    pub(crate) reference: Option<Reference>,
}

impl RequestedImage {
    /// Parses the image of a request.
    ///
    /// # Errors
    /// [`EnsureImageError::InvalidImageName`].
    pub(crate) fn parse(request: &EnsureImageRequest) -> Result<Self, EnsureImageError> {
        Ok(Self::of_sent(sent_name(request)?))
    }

    /// Parses a name with its default tag.
    pub(crate) fn of_sent(sent: String) -> Self {
        Self { reference: Reference::parse(&sent).ok(), sent }
    }

    /// Returns the registry of the image; empty if the name could not be parsed.
    pub(crate) fn registry(&self) -> &str {
        self.reference.as_ref().map_or("", Reference::domain)
    }
}

/// Returns the name that is sent to the runtime. Requests for present images need no more of it.
///
/// # Errors
/// [`EnsureImageError::InvalidImageName`].
pub(crate) fn sent_name(request: &EnsureImageRequest) -> Result<String, EnsureImageError> {
    oci::apply_default_tag(&request.image).map_err(|source| EnsureImageError::InvalidImageName { source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_sent_as_spelled_and_parsed_once() {
        let parse = |image: &str| RequestedImage::parse(&EnsureImageRequest::new(image));
        let image = parse("busybox").expect("a name");
        assert_eq!((image.sent.as_str(), image.registry()), ("busybox:latest", "docker.io"));
        let image = parse("R.example:443/app@sha256:0000000000000000000000000000000000000000000000000000000000000000");
        assert_eq!(image.expect("a name").registry(), "r.example");
        assert!(matches!(parse("Not A Name"), Err(EnsureImageError::InvalidImageName { .. })));
    }
}
