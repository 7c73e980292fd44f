//! [`Pattern`]: the images that a credential or a provider is for, written as `host[:port][/path]` with shell globs in the
//! parts of the host. The kubelet's rules, but a path ends where a segment ends unless [`PathMatch::Compat`] is asked for, and a
//! host is the same in every spelling, as it is in names of images.
//!
//! It knows no indexes and no credentials; the keyring's index and the credential providers call it.

use oci::HostError;

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
    #[error("there is a character that no host or path of an image has")]
    Character,
    /// Longer than any host (253 bytes) or path (255) can be.
    #[error("it is longer than the name of an image can be")]
    Long,
    /// A `[` without its `]`, or with nothing in it.
    #[error("a character class is not complete")]
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
    glob: bool,
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
        let glob = !is_address(host) && host.contains(['*', '?', '[', ']']);
        if glob && !host.split('.').all(|part| is_complete(part.as_bytes())) {
            return Err(BadLocation::Class);
        }
        let authority = normal(host, port, glob)?;
        let host_end = split_port(&authority).0.len();
        Ok(Self { authority: authority.into(), host_end, path: path.into(), glob })
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
        self.glob
    }

    /// Returns true if the pattern matches `repository` (an image without tag and digest).
    #[must_use]
    pub fn matches(&self, repository: &str, mode: PathMatch) -> bool {
        let target = Target::of(repository);
        if !target.ports().any(|port| port == self.port()) || !mode.under(self.path.as_bytes(), target.path.as_bytes())
        {
            return false;
        }
        if !self.glob || target.host.starts_with('[') {
            return self.host() == target.host;
        }
        let mut parts = target.host.split('.');
        self.host().split('.').all(|glob| parts.next().is_some_and(|part| glob_matches(glob, part)))
            && parts.next().is_none()
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

/// Returns true if every character class of a glob is complete.
fn is_complete(mut glob: &[u8]) -> bool {
    while let Some((first, rest)) = glob.split_first() {
        glob = match first {
            b'[' => match class(rest, 0) {
                Some((_, rest)) => rest,
                None => return false,
            },
            _ => rest,
        };
    }
    true
}

/// Reads a character class behind its `[`: whether `byte` is in it, and what follows the `]`.
fn class(text: &[u8], byte: u8) -> Option<(bool, &[u8])> {
    let (negated, mut text) = match text.split_first() {
        Some((b'^', rest)) => (true, rest),
        _ => (false, text),
    };
    let one = |text: &mut &[u8]| -> Option<u8> {
        let (first, rest) = text.split_first().filter(|(b, _)| !matches!(b, b'-' | b']'))?;
        *text = rest;
        Some(*first)
    };
    let mut found = false;
    let mut empty = true;
    loop {
        if let [b']', rest @ ..] = text
            && !empty
        {
            return Some((found != negated, rest));
        }
        let low = one(&mut text)?;
        let high = match text {
            [b'-', rest @ ..] => {
                text = rest;
                one(&mut text)?
            }
            _ => low,
        };
        found |= (low..=high).contains(&byte);
        empty = false;
    }
}

/// Returns true if `text` matches the glob (`*`, `?`, `[…]`). Never slower than the product of the lengths.
pub(crate) fn glob_matches(glob: &str, text: &str) -> bool {
    let (mut glob, mut text) = (glob.as_bytes(), text.as_bytes());
    // Where to go on when what follows the last star does not fit: one byte further.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        let step = match (glob, text) {
            ([], []) => return true,
            ([b'*', rest @ ..], _) => {
                retry = Some((rest, text));
                glob = rest;
                continue;
            }
            (_, []) => return false,
            ([b'?', rest @ ..], [_, text @ ..]) => Some((rest, text)),
            ([b'[', rest @ ..], [byte, text @ ..]) => match class(rest, *byte) {
                Some((true, rest)) => Some((rest, text)),
                _ => None,
            },
            ([want, rest @ ..], [byte, text @ ..]) if want == byte => Some((rest, text)),
            _ => None,
        };
        (glob, text) = match (step, &mut retry) {
            (Some(next), _) => next,
            (None, Some((after_star, from))) => {
                let Some((_, further)) = from.split_first() else { return false };
                *from = further;
                (*after_star, further)
            }
            (None, None) => return false,
        };
    }
}

#[cfg(test)]
#[path = "pattern_tests.rs"]
mod tests;
