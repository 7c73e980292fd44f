//! [`RuntimePolicy`]: the signature policy for images that a container runtime has, no matter which client pulled them.
//! An image counts as present only by a name that the policy accepts now, or by its ID if it accepts one of its names.
//! Called by [`crate::runtime_images`].

use std::path::Path;
use std::sync::Arc;

use cri_api::engine::runtime_store::RuntimeStore;
use cri_api::{Error, Image, Kind, Result};
use oci::{Digest, Reference, ReferenceOrId};

use crate::error::OpenError;
use crate::signatures::evidence::Evidence;
use crate::signatures::{Claim, PolicyFile, recorded};

/// See the file's head.
#[derive(Clone)]
pub(crate) struct RuntimePolicy(Arc<PolicyFile>);

impl RuntimePolicy {
    /// Reads the policy. Blocks.
    pub(crate) fn open(path: &Path) -> std::result::Result<Self, OpenError> {
        Ok(Self(Arc::new(PolicyFile::open(path).map_err(OpenError::SignaturePolicy)?)))
    }

    /// Returns why the policy of this moment does not accept an image by this name or ID; `None`: it does. Without a store there
    /// is no evidence.
    ///
    /// # Errors
    /// The policy cannot be read, or the runtime did not answer.
    pub(crate) async fn objection(
        &self,
        store: Option<&dyn RuntimeStore>,
        image: &Image,
        named: &ReferenceOrId,
    ) -> Result<Option<Error>> {
        let mut claims: Vec<Claim> = Vec::new();
        for name in names(image, named) {
            let evidence = match (&name, store) {
                (Some(Name { record: Some(record), .. }), Some(store)) => evidence(store, record, image).await?,
                _ => Evidence { digests: Vec::new(), signatures: Vec::new() },
            };
            claims.push((name.map(|name| name.reference), Arc::new(evidence)));
        }
        let policy = Arc::clone(&self.0);
        let asked = tokio::task::spawn_blocking(move || policy.objection(claims)).await;
        asked.map_err(|error| Error::new(Kind::Internal, format!("ask the signature policy about {named}: {error}")))?
    }
}

async fn evidence(store: &dyn RuntimeStore, record: &str, image: &Image) -> Result<Evidence> {
    let record = store.record(record).await?;
    let found = record.and_then(|record| Some(recorded::read(&record, &image.id.parse::<Digest>().ok()?)));
    Ok(found.unwrap_or(Evidence { digests: Vec::new(), signatures: Vec::new() }))
}

/// A name by which the policy is asked.
#[derive(Debug, PartialEq, Eq)]
struct Name {
    reference: Reference,
    /// The name as the runtime spells it; `None`: the image does not have this name.
    record: Option<String>,
}

/// Returns the names by which the policy is asked about an image that the runtime found by this name or ID: the name itself, all
/// names of the image for an ID, and `None` for an image without names.
fn names(image: &Image, named: &ReferenceOrId) -> Vec<Option<Name>> {
    let all = || {
        let names = image.repo_tags.iter().chain(&image.repo_digests);
        names.filter_map(|name| {
            Some(Name { reference: Reference::parse(name).ok()?.canonical(), record: Some(name.clone()) })
        })
    };
    let is_id = is_id_of(image, named.as_str());
    // A runtime searches for a name before it searches for an id.
    if let Some(reference) = named.reference().map(|reference| reference.clone().canonical()) {
        if let Some(name) = all().find(|name| name.reference == reference) {
            return vec![Some(name)];
        }
        if !is_id {
            return vec![Some(Name { reference, record: None })];
        }
    }
    let all: Vec<Option<Name>> = all().map(Some).collect();
    if all.is_empty() || !is_id { vec![None] } else { all }
}

/// Returns true if the text is the id of the image or the beginning of its digits.
fn is_id_of(image: &Image, text: &str) -> bool {
    let digits = image.id.strip_prefix("sha256:").unwrap_or(&image.id);
    let text = text.strip_prefix("sha256:").unwrap_or(text);
    !text.is_empty() && digits.starts_with(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_asked_by_itself_and_an_id_by_all_names() {
        let digits = "ab".repeat(32);
        let image = Image {
            id: format!("sha256:{digits}"),
            repo_tags: vec!["docker.io/library/ab:latest".to_owned(), "R.example:0443/x:1".to_owned()],
            repo_digests: vec![format!("docker.io/library/ab@sha256:{digits}")],
            ..Image::default()
        };
        let records = |text: &str| -> Vec<Option<String>> {
            names(&image, &text.into()).into_iter().map(|name| name.expect("a name").record).collect()
        };
        // A name wins over an id that is spelled alike.
        assert_eq!(records("ab"), [Some("docker.io/library/ab:latest".to_owned())]);
        assert_eq!(records("r.example:443/x:1"), [Some("R.example:0443/x:1".to_owned())]);
        assert_eq!(records(&format!("ab@sha256:{digits}")), [Some(image.repo_digests[0].clone())]);
        for id in [image.id.as_str(), &digits, "abab"] {
            assert_eq!(records(id).len(), 3, "{id}");
        }
        // By a name that it does not have, the evidence of other names does not count.
        for other in ["ab:2", "r.example/y", "evil.example/x:1"] {
            assert_eq!(records(other), [None], "{other}");
        }
        assert_eq!(names(&image, &"no name".into()), [None]);
        let unnamed = Image { id: image.id.clone(), ..Image::default() };
        assert_eq!(names(&unnamed, &image.id.as_str().into()), [None]);
    }
}
