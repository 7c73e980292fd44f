//! Tries one credential after the other until a pull succeeds. It does not choose credentials and does not log them.

use cri_api::{ImageService, PullImageRequest};
use oci::RegistryAuth;

use crate::{Attempt, PullFailure};

/// Pulls with each credential in turn, or anonymously where there is none. Answers the image ref and which credential
/// worked, or every cause.
pub(crate) async fn pull_with_credentials(
    service: &dyn ImageService,
    request: &PullImageRequest,
    credentials: &[RegistryAuth],
) -> Result<(String, Option<usize>), PullFailure> {
    let mut tries: Vec<(Option<usize>, Option<&RegistryAuth>)> =
        credentials.iter().enumerate().map(|(i, auth)| (Some(i), Some(auth))).collect();
    if tries.is_empty() {
        tries.push((None, None));
    }
    let mut attempts = Vec::new();
    for (credential, auth) in tries {
        match service.pull_image(PullImageRequest { auth: auth.cloned(), ..request.clone() }).await {
            Ok(image_ref) => return Ok((image_ref, credential)),
            Err(error) => attempts.push(Attempt { credential, error }),
        }
    }
    Err(PullFailure::new(attempts))
}
