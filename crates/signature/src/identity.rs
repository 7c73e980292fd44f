//! [`Identity`]: the rule by which the name in a signature must match the name of the image. The rules, and their
//! names, are those of `containers-policy.json(5)`; the digest is compared elsewhere.

use oci::Reference;

/// The rule by which the signed name must match the image's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// The very reference.
    MatchExact,
    /// By tag the very reference; by digest the repository. The usual one.
    MatchRepoDigestOrExact,
    /// The repository, whatever the tag. cosign signs nothing else.
    MatchRepository,
    /// This reference, whatever was asked for.
    ExactReference(Reference),
    /// This repository, whatever was asked for.
    ExactRepository(String),
    /// As [`Self::MatchRepoDigestOrExact`], after the beginning of the asked name was replaced: for mirrors.
    Remap { prefix: String, signed_prefix: String },
}

impl Identity {
    /// Returns true if a signature for `signed` counts for `asked`, which has a tag or a digest.
    pub(crate) fn accepts(&self, asked: &Reference, signed: &Reference) -> bool {
        match self {
            Self::MatchExact => is_full(asked) && signed == asked,
            Self::MatchRepoDigestOrExact => repo_digest_or_exact(asked, signed),
            Self::MatchRepository => signed.repository() == asked.repository(),
            Self::ExactReference(reference) => is_full(signed) && signed == reference,
            Self::ExactRepository(repository) => signed.repository() == *repository,
            Self::Remap { prefix, signed_prefix } => {
                let text = asked.to_string();
                match remap(&text, prefix, signed_prefix) {
                    None => repo_digest_or_exact(asked, signed),
                    Some(text) => Reference::parse(&text).is_ok_and(|asked| repo_digest_or_exact(&asked, signed)),
                }
            }
        }
    }

    /// The rule's name in a policy.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::MatchExact => "matchExact",
            Self::MatchRepoDigestOrExact => "matchRepoDigestOrExact",
            Self::MatchRepository => "matchRepository",
            Self::ExactReference(_) => "exactReference",
            Self::ExactRepository(_) => "exactRepository",
            Self::Remap { .. } => "remapIdentity",
        }
    }

    /// Returns the advice for a signature that names the right repository and no tag, as cosign's do.
    pub(crate) fn hint(&self, asked: &Reference, signed: &Reference) -> &'static str {
        let wants_tag = matches!(self, Self::MatchExact | Self::MatchRepoDigestOrExact | Self::Remap { .. });
        if wants_tag && !is_full(signed) && signed.repository() == asked.repository() {
            "; cosign signs repositories without tags: use matchRepository or exactRepository"
        } else {
            ""
        }
    }
}

fn is_full(reference: &Reference) -> bool {
    reference.tag().is_some() || reference.digest().is_some()
}

fn repo_digest_or_exact(asked: &Reference, signed: &Reference) -> bool {
    if !is_full(signed) {
        return false;
    }
    match (asked.tag(), asked.digest()) {
        (Some(_), _) => signed == asked,
        (None, Some(_)) => signed.repository() == asked.repository(),
        (None, None) => false,
    }
}

/// The name with its beginning replaced; `None` where it begins otherwise. A beginning ends where a part of a name does.
fn remap(text: &str, prefix: &str, signed_prefix: &str) -> Option<String> {
    let rest = text.strip_prefix(prefix)?;
    // A host's port is no part of its own: `r.example` is not the beginning of `r.example:5000/app`.
    let ends_there = rest.is_empty() || rest.starts_with(['/', '@']) || rest.starts_with(':') && prefix.contains('/');
    ends_there.then(|| format!("{signed_prefix}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: &str = "@sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";

    fn name(text: &str) -> Reference {
        Reference::parse(&text.replace("@D", D)).expect("a reference")
    }

    #[test]
    fn names() {
        let exact = || Identity::ExactReference(name("r.example/app:1"));
        let repository = || Identity::ExactRepository("r.example/app".into());
        let remap = || Identity::Remap { prefix: "mirror.example/r".into(), signed_prefix: "r.example".into() };
        let host = || Identity::Remap { prefix: "mirror.example".into(), signed_prefix: "r.example".into() };
        let cases: Vec<(Identity, &str, &str, bool)> = vec![
            (Identity::MatchExact, "r.example/app:1", "r.example/app:1", true),
            (Identity::MatchExact, "r.example/app:1", "r.example/app:2", false),
            (Identity::MatchExact, "r.example/app:1", "r.example/app", false),
            (Identity::MatchExact, "r.example/app@D", "r.example/app:1", false),
            (Identity::MatchExact, "busybox:1", "docker.io/library/busybox:1", true),
            (Identity::MatchRepoDigestOrExact, "r.example/app:1", "r.example/app:1", true),
            (Identity::MatchRepoDigestOrExact, "r.example/app:1", "r.example/app:2", false),
            (Identity::MatchRepoDigestOrExact, "r.example/app:1", "r.example/app", false),
            (Identity::MatchRepoDigestOrExact, "r.example/app@D", "r.example/app:1", true),
            (Identity::MatchRepoDigestOrExact, "r.example/app@D", "r.example/app", false),
            (Identity::MatchRepoDigestOrExact, "r.example/app@D", "r.example/other:1", false),
            (Identity::MatchRepository, "r.example/app:1", "r.example/app", true),
            (Identity::MatchRepository, "r.example/app:1", "r.example/app:2", true),
            (Identity::MatchRepository, "r.example/app@D", "r.example/app", true),
            (Identity::MatchRepository, "r.example/app:1", "r.example/app/x", false),
            (Identity::MatchRepository, "r.example/app:1", "evil.example/app", false),
            (exact(), "mirror.example/x:9", "r.example/app:1", true),
            (exact(), "mirror.example/x:9", "r.example/app:2", false),
            (exact(), "mirror.example/x:9", "r.example/app", false),
            (repository(), "mirror.example/x:9", "r.example/app", true),
            (repository(), "mirror.example/x:9", "r.example/app:4", true),
            (repository(), "mirror.example/x:9", "r.example/apple", false),
            (remap(), "mirror.example/r/app:1", "r.example/app:1", true),
            (remap(), "mirror.example/r/app:1", "mirror.example/r/app:1", false),
            (remap(), "mirror.example/rr/app:1", "r.example/app:1", false),
            (remap(), "mirror.example/rr/app:1", "mirror.example/rr/app:1", true),
            (remap(), "mirror.example/r/app@D", "r.example/app:7", true),
            (host(), "mirror.example/app:1", "r.example/app:1", true),
            (host(), "mirror.example:5000/app:1", "r.example:5000/app:1", false),
        ];
        for (identity, asked, signed, want) in cases {
            assert_eq!(identity.accepts(&name(asked), &name(signed)), want, "{identity:?}: {signed} for {asked}");
        }
    }

    #[test]
    fn the_hint_is_for_signatures_of_cosign() {
        let (asked, signed) = (name("r.example/app:1"), name("r.example/app"));
        assert!(Identity::MatchRepoDigestOrExact.hint(&asked, &signed).contains("matchRepository"));
        assert_eq!(Identity::MatchRepoDigestOrExact.hint(&asked, &name("r.example/other")), "");
        assert_eq!(Identity::MatchRepository.hint(&asked, &signed), "");
    }
}
