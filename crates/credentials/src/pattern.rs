//! [`Pattern`]: the images that a credential or a provider is for, written as `host[:port][/path]` with shell globs in the
//! parts of the host. The kubelet's rules, but a path ends where a segment ends unless [`PathMatch::Compat`] is asked for, and a
//! host is the same in every spelling, as it is in names of images.
//!
//! It knows no indexes and no credentials; the keyring's index and the credential providers call it.

use oci::HostError;

use crate::glob;

/// Where a pattern's path may end within an image's path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PathMatch {
    /// Only where a segment ends: `reg/a` matches `reg/a` and `reg/a/b`, not `reg/ab`.
    #[default]
    Segments,
    /// Anywhere, as in the kubelet: `reg/a` also matches `reg/ab`, which may belong to another user.
    Compat,
}

impl PathMatch {
    /// Returns true if an image's `path` is below that of a pattern.
    pub(crate) fn under(self, pattern: &[u8], path: &[u8]) -> bool {
        path.starts_with(pattern)
            && match self {
                Self::Compat => true,
                Self::Segments => {
                    path.len() == pattern.len()
                        || pattern.last().is_none_or(|b| *b == b'/')
                        || path[pattern.len()] == b'/'
                }
            }
    }
}

/// Why a text is not a pattern. The text is not part of the error, because a location in a docker configuration may hold
/// anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLocation {
    /// Nothing before the path.
    #[error("there is no host")]
    NoHost,
    /// `user@host`.
    #[error("there is a user name before the host")]
    UserName,
    /// The port is no number.
    #[error("the port is not a number")]
    Port,
    /// The host has no normal form.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Something that no host or path has.
    #[error("invalid character in a host or path")]
    Character,
    /// Longer than any host (253 bytes) or path (255) can be.
    #[error("longer than an image name can be")]
    Long,
    /// A `[` without its `]`, with nothing in it, or with a range that ends before it starts.
    #[error("invalid character class")]
    Class,
}

const HTTPS: &str = "443";
const MAX_HOST: usize = 253;
/// The path of an image is at most 255 characters; this includes the leading slash.
const MAX_PATH: usize = 256;

/// A parsed pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    authority: Box<str>,
    host_end: usize,
    path: Box<str>,
    is_glob: bool,
}

impl Pattern {
    /// Parses `host[:port][/path]`, as in a provider's `matchImages`.
    ///
    /// # Errors
    /// See [`BadLocation`].
    pub fn parse(text: &str) -> Result<Self, BadLocation> {
        let (authority, path) = split_path(text);
        Self::of(authority, path)
    }

    /// Parses a location of a docker configuration: a scheme is left out, and so is an API version (`/v1/`, `/v2/`) that
    /// begins the path.
    pub(crate) fn location(text: &str) -> Result<Self, BadLocation> {
        let text = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).unwrap_or(text);
        let (authority, path) = split_path(text);
        let path = if path.starts_with("/v1/") || path.starts_with("/v2/") { &path[3..] } else { path };
        Self::of(authority, if path == "/" { "" } else { path })
    }

    fn of(authority: &str, path: &str) -> Result<Self, BadLocation> {
        if authority.contains('@') {
            return Err(BadLocation::UserName);
        }
        let (host, port) = split_port(authority);
        if host.is_empty() || host == "[]" {
            return Err(BadLocation::NoHost);
        }
        if host.len() > MAX_HOST || path.len() > MAX_PATH {
            return Err(BadLocation::Long);
        }
        if !port.bytes().all(|b| b.is_ascii_digit()) {
            return Err(BadLocation::Port);
        }
        // A colon is left in a host only when there are several: an address without its brackets, or a broken port.
        if !is_address(host) && host.contains(':') {
            return Err(BadLocation::Port);
        }
        let word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~');
        if !host.bytes().all(|b| word(b) || matches!(b, b'*' | b'?' | b'[' | b']' | b'^' | b':'))
            || !path.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'?' | b'#' | b'%' | b'@'))
        {
            return Err(BadLocation::Character);
        }
        let is_glob = !is_address(host) && host.contains(['*', '?', '[', ']']);
        if is_glob && !host.split('.').all(glob::is_valid) {
            return Err(BadLocation::Class);
        }
        let authority = normal(host, port, is_glob)?;
        let host_end = split_port(&authority).0.len();
        Ok(Self { authority: authority.into(), host_end, path: path.into(), is_glob })
    }

    /// Host and port as in an image's name.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    pub(crate) fn host(&self) -> &str {
        &self.authority[..self.host_end]
    }

    /// Without the colon; empty where there is none.
    pub(crate) fn port(&self) -> &str {
        self.authority[self.host_end..].trim_start_matches(':')
    }

    /// With the slash that begins it; empty where there is none.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Returns true if the host has a glob.
    pub(crate) fn is_glob(&self) -> bool {
        self.is_glob
    }

    /// Returns true if the pattern matches `repository` (an image without tag and digest).
    #[must_use]
    pub fn matches(&self, repository: &str, mode: PathMatch) -> bool {
        let target = Target::of(repository);
        if !target.ports().any(|port| port == self.port()) || !mode.under(self.path.as_bytes(), target.path.as_bytes())
        {
            return false;
        }
        if !self.is_glob || target.host.starts_with('[') {
            return self.host() == target.host;
        }
        let parts = || self.host().split('.').zip(target.host.split('.'));
        // Plain parts first: they cost nothing.
        self.host().split('.').count() == target.host.split('.').count()
            && parts().all(|(glob, part)| glob.contains(glob::WILDCARDS) || glob == part)
            && parts().all(|(glob, part)| glob::matches(glob, part))
    }
}

/// Returns true if `pattern` matches the image `target` (without tag and digest).
///
/// # Errors
/// `pattern` is none.
pub fn matches(pattern: &str, target: &str, mode: PathMatch) -> Result<bool, BadLocation> {
    Ok(Pattern::parse(pattern)?.matches(target, mode))
}

/// An image's name without tag and digest, split into the parts that patterns match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    /// Host and port, without a colon that ends it.
    pub(crate) authority: &'a str,
    pub(crate) host: &'a str,
    pub(crate) port: &'a str,
    /// With the slash that begins it.
    pub(crate) path: &'a str,
}

impl<'a> Target<'a> {
    pub(crate) fn of(repository: &'a str) -> Self {
        let (authority, path) = split_path(repository);
        let (host, port) = split_port(authority);
        Self { authority: if port.is_empty() { host } else { authority }, host, port, path }
    }

    /// The ports by which patterns are for it. No port is port 443, but on loopback, where it may be plain HTTP as well.
    pub(crate) fn ports(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let same = match self.port {
            "" => Some(HTTPS),
            HTTPS => Some(""),
            _ => None,
        };
        std::iter::once(self.port).chain(same.filter(|_| !oci::is_loopback_host(self.authority)))
    }
}

/// Host and port of a pattern in the form that those of images have. Where a host has globs, its port stays.
fn normal(host: &str, port: &str, glob: bool) -> Result<String, HostError> {
    let lower = host.to_ascii_lowercase();
    let authority = match port {
        "" => lower,
        _ => format!("{lower}:{}", oci::normal_port(port)?),
    };
    // A single label without a port is not a host in an image's name. Names with `_` and `~` are kept as they are.
    if glob || host.contains(['_', '~']) || !authority.contains(['.', ':']) {
        return Ok(authority);
    }
    match oci::normal_host(&authority) {
        Ok(normal) => Ok(normal.into_owned()),
        Err(HostError::Format) => Ok(authority),
        Err(error) => Err(error),
    }
}

fn split_path(text: &str) -> (&str, &str) {
    text.split_at(text.find('/').unwrap_or(text.len()))
}

/// Host and port. As in Go, something with several colons and no brackets has no port.
fn split_port(authority: &str) -> (&str, &str) {
    let address_end = if authority.starts_with('[') { authority.find(']').map_or(0, |at| at + 1) } else { 0 };
    match authority[address_end..].split_once(':') {
        Some((rest, port)) if !port.contains(':') => (&authority[..address_end + rest.len()], port),
        _ => (authority, ""),
    }
}

/// Returns true if a host is an IPv6 address in brackets, and not a glob that begins with a character class.
fn is_address(host: &str) -> bool {
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).is_some_and(|address| {
        address.contains(':') && address.bytes().all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.'))
    })
}

#[cfg(test)]
#[path = "pattern_tests.rs"]
mod tests;
