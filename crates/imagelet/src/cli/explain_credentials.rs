//! Verifies credentials with a registry, for `imagelet explain --check-credentials`: each is presented as a pull would present it, and
//! nothing is pulled.

use credentials::{Keyring, Requester};
use cri_api::Kind;
use oci::Reference;

use crate::app::App;
use crate::exit::{Failure, Outcome, chain};
use crate::images::registries;

/// The credentials of an image, as its registry judges them.
pub(super) struct Checked {
    /// All credentials, in the order of a pull, with the verdict.
    pub(super) credentials: Vec<String>,
    /// The refused credentials, with the reason.
    pub(super) refused: Vec<String>,
}

/// Presents every credential that a pull would try to the registry of an image.
pub(super) async fn check(app: &App, keyring: &Keyring, image: &str, requester: &Requester) -> Outcome<Checked> {
    let mut checked = Checked { credentials: Vec::new(), refused: Vec::new() };
    let Ok(reference) = Reference::parse(image) else { return Ok(checked) };
    let found = keyring.candidates(&reference, requester).await;
    let found = found.map_err(|error| Failure::failed(format!("{image}: {}", chain(&error))))?;
    let registries = registries(&app.config, &app.environment.proxies);
    let all = found.candidates.into_iter().map(|candidate| (candidate.source.to_string(), Some(candidate.auth)));
    let mut all: Vec<_> = all.collect();
    if all.is_empty() {
        all.push(("no credential".to_owned(), None));
    }
    for (source, auth) in all {
        match registries.check_image(&reference, auth).await {
            Ok(()) => checked.credentials.push(format!("{source}: accepted")),
            Err(error) if matches!(error.kind(), Kind::Unauthenticated | Kind::PermissionDenied) => {
                checked.refused.push(format!("{source} is refused: {}", error.message()));
                checked.credentials.push(format!("{source}: refused"));
            }
            Err(error) => checked.credentials.push(format!("{source}: {}", error.message())),
        }
    }
    Ok(checked)
}
