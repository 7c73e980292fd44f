//! [`RequestedImage`]: the image of a request, parsed once. The manager, its back-off and the puller get this type and parse no text.

use oci::{Reference, ReferenceOrId};

use crate::requested_name::RequestedName;
use crate::{EnsureImageError, EnsureImageRequest};

/// The image of a request.
#[derive(Clone, Debug)]
pub(crate) struct RequestedImage<'a> {
    /// The name by which the container asks for it.
    pub(crate) name: RequestedName<'a>,
    /// The name that is sent to the runtime: with its default tag but otherwise as the user spelled it, so that the runtime applies
    /// its own default registry.
    pub(crate) sent: String,
}

impl<'a> RequestedImage<'a> {
    /// Checks the image name of a request.
    ///
    /// # Errors
    /// [`EnsureImageError::InvalidImageName`].
    pub(crate) fn parse(request: &'a EnsureImageRequest) -> Result<Self, EnsureImageError> {
        Ok(Self { sent: sent_name(request)?, name: RequestedName::new(&request.image) })
    }

    /// Returns the parsed name, without a default tag.
    pub(crate) fn reference(&self) -> &Reference {
        self.name.reference().expect("a name to which a tag can be added is a reference")
    }

    /// Returns the image by the name that is sent.
    pub(crate) fn reference_or_id(&self) -> ReferenceOrId {
        ReferenceOrId::of_reference(self.reference().clone().with_default_tag(), &self.sent)
    }

    /// Returns the registry of the image.
    pub(crate) fn registry(&self) -> &str {
        self.reference().domain()
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
        let request = EnsureImageRequest::new("busybox");
        let image = RequestedImage::parse(&request).expect("a name");
        assert_eq!((image.sent.as_str(), image.registry()), ("busybox:latest", "docker.io"));
        assert_eq!(image.reference_or_id(), "busybox:latest".into());
        assert_eq!((image.name.text(), image.name.to_static().text()), ("busybox", "busybox"));
        let digest = format!("sha256:{}", "0".repeat(64));
        let request = EnsureImageRequest::new(format!("R.example:443/app@{digest}"));
        let image = RequestedImage::parse(&request).expect("a name");
        assert_eq!((image.sent.as_str(), image.registry()), (request.image.as_str(), "r.example"));
        let request = EnsureImageRequest::new("Not A Name");
        assert!(matches!(RequestedImage::parse(&request), Err(EnsureImageError::InvalidImageName { .. })));
    }
}
