//! [`RequestKey`]: which requests take one turn together: those for the same image with the same credentials in the same order.
//!
//! The source of a credential makes no difference, its content does: two pods with different secrets of the same content share a
//! pull, and two with different passwords are verified one by one. The pull's work is shared in the image service, by digest and
//! access; this key only decides that such requests have one place in the queue, one pull intent and one record.

use std::sync::Arc;

use oci::CredentialId;

use super::Wanted;

/// The annotation of a sandbox by which containerd chooses where an image is unpacked.
const SANDBOX_HANDLER: &str = "io.containerd.cri.runtime-handler";

/// Equal for requests that take one turn together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RequestKey {
    image: String,
    runtime_handler: String,
    sandbox_handler: Option<String>,
    credentials: Arc<[CredentialId]>,
    /// Distinguishes requests that share nothing.
    alone: Option<u64>,
}

impl RequestKey {
    pub(super) fn of(wanted: &Wanted, alone: Option<u64>) -> Self {
        let annotations = wanted.sandbox.as_ref().map(|sandbox| &sandbox.annotations);
        Self {
            image: wanted.spec.image.clone(),
            runtime_handler: wanted.spec.runtime_handler.clone(),
            sandbox_handler: annotations.and_then(|annotations| annotations.get(SANDBOX_HANDLER)).cloned(),
            credentials: wanted.candidates.iter().map(|candidate| candidate.auth.id()).collect(),
            alone,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use credentials::{Candidate, SecretCoordinates, Source};
    use cri_api::{ImageSpec, PodSandboxConfig};
    use oci::RegistryAuth;

    use super::*;

    fn candidate(user: &str, password: &str, secret: &str) -> Candidate {
        let source = Source::Secret(SecretCoordinates { name: secret.into(), ..SecretCoordinates::default() });
        Candidate { auth: RegistryAuth::basic(user, password), source, hash: String::new() }
    }

    fn wanted(image: &str, handler: &str, sandbox: Option<&str>, candidates: Vec<Candidate>) -> Wanted {
        let mut wanted = Wanted::new(ImageSpec { runtime_handler: handler.into(), ..ImageSpec::new(image) });
        wanted.candidates = candidates.into();
        wanted.sandbox = sandbox.map(|handler| PodSandboxConfig {
            annotations: [(SANDBOX_HANDLER.to_owned(), handler.to_owned())].into(),
            ..PodSandboxConfig::default()
        });
        wanted
    }

    #[test]
    fn equal_credentials_share_a_turn() {
        let a = || candidate("u", "a", "s1");
        let same = [
            (wanted("i:1", "", None, vec![]), wanted("i:1", "", None, vec![])),
            (wanted("i:1", "kata", None, vec![a()]), wanted("i:1", "kata", None, vec![candidate("u", "a", "s2")])),
            (wanted("i:1", "", Some("k"), vec![]), wanted("i:1", "", Some("k"), vec![])),
        ];
        for (one, other) in &same {
            let keys: HashSet<RequestKey> = [RequestKey::of(one, None), RequestKey::of(other, None)].into();
            assert_eq!(keys.len(), 1, "{one:?} {other:?}");
        }
        let different = [
            wanted("i:1", "", None, vec![]),
            wanted("i:2", "", None, vec![]),
            wanted("i:1", "kata", None, vec![]),
            wanted("i:1", "", Some("k"), vec![]),
            wanted("i:1", "", None, vec![a()]),
            wanted("i:1", "", None, vec![candidate("u", "b", "s1")]),
            wanted("i:1", "", None, vec![a(), candidate("u", "b", "s1")]),
            wanted("i:1", "", None, vec![candidate("u", "b", "s1"), a()]),
        ];
        let keys: HashSet<RequestKey> = different.iter().map(|wanted| RequestKey::of(wanted, None)).collect();
        assert_eq!(keys.len(), different.len());
        assert_ne!(RequestKey::of(&different[0], Some(1)), RequestKey::of(&different[0], Some(2)));
    }

    #[test]
    fn keys_show_no_secret() {
        let shown =
            format!("{:?}", RequestKey::of(&wanted("i:1", "", None, vec![candidate("ada", "swordfish", "s")]), None));
        assert!(!shown.contains("ada") && !shown.contains("swordfish"), "{shown}");
    }
}
