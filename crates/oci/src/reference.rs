//! [`Reference`]: an image name in the docker-normalised grammar, and the kubelet's three spellings of one:
//! [`parse_image_name`] (normal form), [`apply_default_tag`] (as sent to CRI) and [`trim_tag_and_digest`] (keys of
//! credential mappings). Error texts are those of docker and containerd, because people search for them.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use crate::grammar::{FirstComponent, first_component, is_digest_text, is_domain, is_tag, path_end};
use crate::{Digest, DigestError, HostError, host};

const DEFAULT_DOMAIN: &str = "docker.io";
const LEGACY_DEFAULT_DOMAIN: &str = "index.docker.io";
const OFFICIAL_PREFIX: &str = "library/";
const DEFAULT_TAG: &str = "latest";
const MAX_PATH: usize = 255;

/// The reason why a text is no reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// The grammar does not fit.
    #[error("invalid reference format")]
    Format,
    /// The repository has upper-case letters.
    #[error("invalid reference format: repository name ({0}) must be lowercase")]
    Uppercase(String),
    /// A capital letter in a repository, found by the plain parser, which does not know where the repository begins.
    #[error("repository name must be lowercase")]
    PlainUppercase,
    /// 64 hex digits could be an image id.
    #[error("invalid repository name ({0}), cannot specify 64-byte hexadecimal strings")]
    Identifier(String),
    /// The text is empty.
    #[error("repository name must have at least one component")]
    Empty,
    /// The path is longer than 255 characters.
    #[error("repository name must not be more than 255 characters")]
    TooLong,
    /// The registry's host has no normal form.
    #[error("invalid reference format: host {host:?}: {why}")]
    Host {
        /// The host as it was given.
        host: String,
        /// The fault of the host.
        why: HostError,
    },
    /// The digest is not one.
    #[error(transparent)]
    Digest(#[from] DigestError),
}

/// An image name that could not be parsed; worded as the kubelet words it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("couldn't parse image name {name:?}: {source}")]
pub struct ImageNameError {
    /// The text as it was given.
    pub name: String,
    /// The fault of the name.
    pub source: ReferenceError,
}

/// A parsed image name in normal form: always with a domain, which is in the normal form of hosts
/// ([`normal_host`](crate::normal_host)); tag and digest only where the text had them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// Domain and path in one text, since most callers want both.
    repository: String,
    domain_end: usize,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl Reference {
    /// Parses `text` as the peers do: `busybox` is `docker.io/library/busybox`. No default tag is added. Unlike the peers it
    /// takes every spelling of a host for the same: `Docker.io:443/busybox` is `docker.io/library/busybox` as well.
    ///
    /// # Errors
    /// See [`ReferenceError`].
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        let normal = NormalName::of(text)?;
        Ok(Self {
            repository: normal.repository(),
            domain_end: normal.domain.len(),
            tag: normal.tag.map(str::to_owned),
            digest: normal.digest.map(str::parse).transpose()?,
        })
    }

    /// The registry host, with port where there is one: `docker.io`, `127.0.0.1:5000`.
    #[must_use]
    pub fn domain(&self) -> &str {
        &self.repository[..self.domain_end]
    }

    /// The repository within the registry: `library/busybox`.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.repository[self.domain_end + 1..]
    }

    /// The tag, if the text had one.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest, if the text had one.
    #[must_use]
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// Domain and path: `docker.io/library/busybox`.
    #[must_use]
    pub fn repository(&self) -> String {
        self.repository.clone()
    }

    /// With tag `latest` where there is neither tag nor digest.
    #[must_use]
    pub fn with_default_tag(mut self) -> Self {
        if self.tag.is_none() && self.digest.is_none() {
            self.tag = Some(DEFAULT_TAG.to_owned());
        }
        self
    }

    /// The form under which an image is recorded: with the default tag, and with a digest the tag dropped, since the
    /// digest alone decides.
    #[must_use]
    pub fn canonical(mut self) -> Self {
        if self.digest.is_some() {
            self.tag = None;
        }
        self.with_default_tag()
    }

    /// The same repository by this digest, without tag.
    #[must_use]
    pub fn at_digest(&self, digest: Digest) -> Self {
        Self { repository: self.repository.clone(), domain_end: self.domain_end, tag: None, digest: Some(digest) }
    }
}

impl Ord for Reference {
    /// By domain, path, tag and digest, in this order.
    fn cmp(&self, other: &Self) -> Ordering {
        (self.domain(), self.path(), &self.tag, &self.digest).cmp(&(
            other.domain(),
            other.path(),
            &other.tag,
            &other.digest,
        ))
    }
}

impl PartialOrd for Reference {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        Self::parse(text)
    }
}

/// An image name as the kubelet reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageName {
    /// Domain and path in normal form.
    pub repository: String,
    /// The tag; `latest` where there is neither tag nor digest, empty with a digest alone.
    pub tag: String,
    /// The digest, or empty.
    pub digest: String,
}

/// Parses an image name with the kubelet's defaults (reference: kubelet, `ParseImageName`).
///
/// # Errors
/// [`ImageNameError`], which names the text.
pub fn parse_image_name(image: &str) -> Result<ImageName, ImageNameError> {
    let normal = NormalName::of(image).map_err(|source| ImageNameError { name: image.to_owned(), source })?;
    Ok(ImageName {
        repository: normal.repository(),
        tag: normal.tag_or_default().to_owned(),
        digest: normal.digest.unwrap_or_default().to_owned(),
    })
}

/// The text that a CRI runtime is sent: the default tag is appended where it is missing, and nothing else is changed,
/// so that the runtime applies its own default registry.
///
/// # Errors
/// [`ImageNameError`], which names the text.
pub fn apply_default_tag(image: &str) -> Result<String, ImageNameError> {
    let normal = NormalName::of(image).map_err(|source| ImageNameError { name: image.to_owned(), source })?;
    let tag = normal.tag_or_default();
    if normal.digest.is_some() || image.strip_suffix(tag).is_some_and(|before| before.ends_with(':')) {
        return Ok(image.to_owned());
    }
    let mut tagged = String::with_capacity(image.len() + 1 + tag.len());
    tagged.push_str(image);
    tagged.push(':');
    tagged.push_str(tag);
    Ok(tagged)
}

/// The name in the user's own spelling without tag and digest, by the plain grammar (no default domain).
///
/// # Errors
/// [`ReferenceError`].
pub fn trim_tag_and_digest(image: &str) -> Result<String, ReferenceError> {
    bare_name(image).map(str::to_owned)
}

/// The same as [`trim_tag_and_digest`], as the part of `image` that it is.
///
/// # Errors
/// [`ReferenceError`].
pub fn bare_name(image: &str) -> Result<&str, ReferenceError> {
    if image.is_empty() {
        return Err(ReferenceError::Empty);
    }
    match plain_name_end(image) {
        Ok(end) => Ok(&image[..end]),
        Err(ReferenceError::Format) if plain_name_end(&image.to_lowercase()).is_ok() => {
            Err(ReferenceError::PlainUppercase)
        }
        Err(other) => Err(other),
    }
}

/// Where the name ends, and tag and digest begin, by the plain grammar.
fn plain_name_end(text: &str) -> Result<usize, ReferenceError> {
    // A colon before the first slash belongs to the domain's port.
    let (before, rest) = match first_component(text) {
        Some((first, _)) if is_domain(first) => (first.len() + 1, &text[first.len() + 1..]),
        _ => (0, text),
    };
    let parts = ReferenceParts::split(rest)?;
    ReferenceParts::check(parts.path.len(), parts.digest)?;
    Ok(before + parts.path.len())
}

/// A checked name in normal form, still lying in its text.
struct NormalName<'a> {
    domain: Cow<'a, str>,
    /// `library/` where the default registry leaves it out.
    official: &'static str,
    path: &'a str,
    tag: Option<&'a str>,
    digest: Option<&'a str>,
}

impl<'a> NormalName<'a> {
    fn of(text: &'a str) -> Result<Self, ReferenceError> {
        if text.is_empty() {
            return Err(ReferenceError::Empty);
        }
        if text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(ReferenceError::Identifier(text.to_owned()));
        }
        let (domain, remainder) = split_domain(text);
        let domain = normal_domain(domain);
        let official = match &domain {
            Ok(domain) if domain == DEFAULT_DOMAIN && !remainder.contains('/') => OFFICIAL_PREFIX,
            _ => "",
        };
        domain.and_then(|domain| Self::checked(domain, official, remainder)).map_err(|error| {
            // Reported before any other error. A valid path has no uppercase letter, so only errors pay for the search.
            let before_tag = remainder.split(':').next().unwrap_or_default();
            match before_tag.contains(char::is_uppercase) {
                true => ReferenceError::Uppercase(format!("{official}{before_tag}")),
                false => error,
            }
        })
    }

    fn checked(domain: Cow<'a, str>, official: &'static str, remainder: &'a str) -> Result<Self, ReferenceError> {
        let ReferenceParts { path, tag, digest } = ReferenceParts::split(remainder)?;
        ReferenceParts::check(official.len() + path.len(), digest)?;
        Ok(Self { domain, official, path, tag, digest })
    }

    fn repository(&self) -> String {
        let Self { domain, official, path, .. } = self;
        let mut repository = String::with_capacity(domain.len() + 1 + official.len() + path.len());
        for part in [&**domain, "/", *official, *path] {
            repository.push_str(part);
        }
        repository
    }

    /// Returns the tag as the kubelet does: none if the reference has only a digest.
    fn tag_or_default(&self) -> &'a str {
        self.tag.unwrap_or(if self.digest.is_some() { "" } else { DEFAULT_TAG })
    }
}

/// Domain and remainder. The part before the first slash is a domain only if it looks like one.
fn split_domain(text: &str) -> (&str, &str) {
    let is_domain = |first: &str, looks| match looks {
        FirstComponent::Domain => true,
        FirstComponent::Plain => first == "localhost",
        FirstComponent::Foreign => first.to_lowercase() != first,
    };
    match first_component(text) {
        Some((first, looks)) if is_domain(first, looks) => (first, &text[first.len() + 1..]),
        _ => (DEFAULT_DOMAIN, text),
    }
}

/// The domain in the normal form of hosts, with the default registry's one name.
fn normal_domain(domain: &str) -> Result<Cow<'_, str>, ReferenceError> {
    if !is_domain(domain) {
        return Err(ReferenceError::Format);
    }
    let normal = host::normal(domain).map_err(|why| ReferenceError::Host { host: domain.to_owned(), why })?;
    Ok(if normal == LEGACY_DEFAULT_DOMAIN { Cow::Borrowed(DEFAULT_DOMAIN) } else { normal })
}

/// `path[:tag][@digest]` cut into its parts, each of which has the right form.
struct ReferenceParts<'a> {
    path: &'a str,
    tag: Option<&'a str>,
    digest: Option<&'a str>,
}

impl<'a> ReferenceParts<'a> {
    fn split(text: &'a str) -> Result<Self, ReferenceError> {
        let (path, rest) = text.split_at(path_end(text).ok_or(ReferenceError::Format)?);
        let (tag, rest) = match rest.strip_prefix(':') {
            Some(rest) => {
                let (tag, rest) = rest.split_at(rest.bytes().position(|b| b == b'@').unwrap_or(rest.len()));
                (Some(tag), rest)
            }
            None => (None, rest),
        };
        let digest = rest.strip_prefix('@');
        if tag.is_some_and(|tag| !is_tag(tag)) || digest.is_some_and(|digest| !is_digest_text(digest)) {
            return Err(ReferenceError::Format);
        }
        Ok(Self { path, tag, digest })
    }

    /// Checks the length of a path, which the caller counts, and a digest.
    fn check(length: usize, digest: Option<&str>) -> Result<(), ReferenceError> {
        if length > MAX_PATH {
            return Err(ReferenceError::TooLong);
        }
        Ok(digest.map_or(Ok(()), Digest::check)?)
    }
}

#[cfg(test)]
#[path = "reference_tests.rs"]
mod tests;
