//! [`VerificationPolicy`]: for which images the credentials of a pod are verified, and the [`Allowlist`] of those for
//! which they are not. Pure; names, patterns and error texts are the kubelet's
//! (`imagePullCredentialsVerificationPolicy`, `preloadedImagesVerificationAllowlist`).

use std::borrow::Cow;
use std::collections::BTreeSet;

use oci::{ReferenceError, trim_tag_and_digest};

use crate::Grant;

/// When a pod has to prove that it may use an image that is already present.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum VerificationPolicy {
    /// Never: every pod may use every present image.
    NeverVerify,
    /// When imagelet pulled the image; every pod may use preloaded images.
    #[default]
    NeverVerifyPreloadedImages,
    /// Unless the image is on the list.
    NeverVerifyAllowlistedImages(Allowlist),
    /// Always, also for preloaded images and for those of an allowlist.
    AlwaysVerify,
}

impl VerificationPolicy {
    /// The name in the configuration.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::NeverVerify => "NeverVerify",
            Self::NeverVerifyPreloadedImages => "NeverVerifyPreloadedImages",
            Self::NeverVerifyAllowlistedImages(_) => "NeverVerifyAllowlistedImages",
            Self::AlwaysVerify => "AlwaysVerify",
        }
    }

    /// Why `image` is for every pod, or `None` if its credentials have to be verified. `pulled_by_us`: a record or an
    /// intent exists.
    pub(super) fn exempts(&self, image: &str, pulled_by_us: bool) -> Option<Grant> {
        match self {
            Self::NeverVerify => Some(Grant::PolicyNeverVerifies),
            Self::NeverVerifyPreloadedImages => (!pulled_by_us).then_some(Grant::Preloaded),
            Self::NeverVerifyAllowlistedImages(list) => list.matches(image).then_some(Grant::Allowlisted),
            Self::AlwaysVerify => None,
        }
    }
}

/// Images for which credentials are not verified: names without tag and digest, or prefixes that end in `/*`. A name
/// is matched as it is spelled, but for its host, which is the same in every spelling; `nginx` and
/// `docker.io/library/nginx` are two names, as in the kubelet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowlist {
    names: BTreeSet<String>,
    /// Each ends in a slash.
    prefixes: Vec<String>,
}

/// A pattern that the allowlist cannot take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllowlistError {
    /// Spaces around it.
    #[error("leading/trailing spaces are not allowed: {0}")]
    Spaces(String),
    /// Nothing there.
    #[error("the supplied pattern is too short: {0}")]
    TooShort(String),
    /// A star that is not the last path segment.
    #[error("not a valid wildcard pattern, only patterns ending with '/*' are allowed: {0}")]
    Wildcard(String),
    /// A star alone.
    #[error("at least registry hostname is required")]
    NoHost,
    /// Not an image name.
    #[error("failed to parse as an image name: {0}")]
    Name(#[source] ReferenceError),
    /// Has a tag or a digest.
    #[error("neither tag nor digest is accepted in an image reference: {0}")]
    TagOrDigest(String),
}

impl Allowlist {
    /// Takes patterns as the configuration has them.
    ///
    /// # Errors
    /// [`AllowlistError`] of the first pattern that is wrong.
    pub fn parse(patterns: &[String]) -> Result<Self, AllowlistError> {
        let mut list = Self::default();
        for pattern in patterns {
            list.add(pattern)?;
        }
        Ok(list)
    }

    fn add(&mut self, pattern: &str) -> Result<(), AllowlistError> {
        if pattern != pattern.trim() {
            return Err(AllowlistError::Spaces(pattern.to_owned()));
        }
        // The prefix keeps its slash, so that `reg/a/*` is not for `reg/ab/x`.
        let prefix = pattern.ends_with("/*").then(|| &pattern[..pattern.len() - 1]);
        let rest = prefix.unwrap_or(pattern);
        if rest.is_empty() {
            return Err(AllowlistError::TooShort(pattern.to_owned()));
        }
        if rest.contains('*') {
            return Err(AllowlistError::Wildcard(pattern.to_owned()));
        }
        match prefix {
            Some("/") => return Err(AllowlistError::NoHost),
            Some(prefix) => self.prefixes.push(with_normal_host(prefix)?.into_owned()),
            None => {
                let name = trim_tag_and_digest(pattern).map_err(AllowlistError::Name)?;
                if name != pattern {
                    return Err(AllowlistError::TagOrDigest(pattern.to_owned()));
                }
                self.names.insert(with_normal_host(&name)?.into_owned());
            }
        }
        Ok(())
    }

    fn matches(&self, image: &str) -> bool {
        let name = trim_tag_and_digest(image).map_err(AllowlistError::Name);
        let name = match name.as_deref().map_err(Clone::clone).and_then(with_normal_host) {
            Ok(name) => name,
            Err(error) => {
                tracing::warn!(image, %error, "cannot look for an image on the allowlist");
                return false;
            }
        };
        self.names.contains(&*name) || self.prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()))
    }
}

/// Returns the text with the normal form of its host, where the part before the first slash can only be a host.
fn with_normal_host(text: &str) -> Result<Cow<'_, str>, AllowlistError> {
    let (host, below) = text.split_at(text.find('/').unwrap_or(0));
    if !host.contains(['.', ':']) && !host.bytes().any(|b| b.is_ascii_uppercase()) {
        return Ok(Cow::Borrowed(text));
    }
    let failed = |why| AllowlistError::Name(ReferenceError::Host { host: host.to_owned(), why });
    Ok(match oci::normal_host(host).map_err(failed)? {
        normal if normal == host => Cow::Borrowed(text),
        normal => Cow::Owned(format!("{normal}{below}")),
    })
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
