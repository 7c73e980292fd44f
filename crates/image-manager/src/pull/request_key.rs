//! [`PullKey`]: which requests share one pull: those that ask the registry the same with the same credentials.
//!
//! The source of a credential makes no difference, its content does: two pods with different secrets of the same content
//! share a pull, and two with different passwords are verified one by one.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use credentials::Candidate;

use super::Wanted;

/// The annotation of a sandbox by which containerd chooses where an image is unpacked.
const SANDBOX_HANDLER: &str = "io.containerd.cri.runtime-handler";

/// Equal for requests that share one pull.
#[derive(Clone)]
pub(super) struct PullKey {
    image: String,
    runtime_handler: String,
    sandbox_handler: Option<String>,
    candidates: Arc<[Candidate]>,
    /// Tells requests apart that share nothing.
    alone: Option<u64>,
}

impl PullKey {
    pub(super) fn of(wanted: &Wanted, alone: Option<u64>) -> Self {
        let annotations = wanted.sandbox.as_ref().map(|sandbox| &sandbox.annotations);
        Self {
            image: wanted.spec.image.clone(),
            runtime_handler: wanted.spec.runtime_handler.clone(),
            sandbox_handler: annotations.and_then(|annotations| annotations.get(SANDBOX_HANDLER)).cloned(),
            candidates: Arc::clone(&wanted.candidates),
            alone,
        }
    }

    fn plain(&self) -> (&str, &str, Option<&str>, Option<u64>) {
        (&self.image, &self.runtime_handler, self.sandbox_handler.as_deref(), self.alone)
    }
}

impl PartialEq for PullKey {
    fn eq(&self, other: &Self) -> bool {
        let auths = |key: &Self| key.candidates.len();
        self.plain() == other.plain()
            && (Arc::ptr_eq(&self.candidates, &other.candidates)
                || auths(self) == auths(other)
                    && self.candidates.iter().zip(other.candidates.iter()).all(|(a, b)| a.auth == b.auth))
    }
}

impl Eq for PullKey {}

impl Hash for PullKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.plain().hash(state);
        for candidate in self.candidates.iter() {
            candidate.auth.username.hash(state);
        }
    }
}

impl fmt::Debug for PullKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PullKey").field("plain", &self.plain()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use credentials::{SecretCoordinates, Source};
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
    fn who_shares() {
        let a = || candidate("u", "a", "s1");
        let same = [
            (wanted("i:1", "", None, vec![]), wanted("i:1", "", None, vec![])),
            (wanted("i:1", "kata", None, vec![a()]), wanted("i:1", "kata", None, vec![candidate("u", "a", "s2")])),
            (wanted("i:1", "", Some("k"), vec![]), wanted("i:1", "", Some("k"), vec![])),
        ];
        for (one, other) in &same {
            let keys: HashSet<PullKey> = [PullKey::of(one, None), PullKey::of(other, None)].into();
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
        let keys: HashSet<PullKey> = different.iter().map(|wanted| PullKey::of(wanted, None)).collect();
        assert_eq!(keys.len(), different.len());
        assert_ne!(PullKey::of(&different[0], Some(1)), PullKey::of(&different[0], Some(2)));
    }

    #[test]
    fn no_secret_is_shown() {
        let shown =
            format!("{:?}", PullKey::of(&wanted("i:1", "", None, vec![candidate("ada", "swordfish", "s")]), None));
        assert!(!shown.contains("ada") && !shown.contains("swordfish"), "{shown}");
    }
}
