//! [`Endpoint`]: where a CRI service listens, from the text that a person or a kubelet configuration gives.
//!
//! Pure: it does no I/O. Takes every form that leads the kubelet to a unix socket, with its messages for those it
//! refuses; forms that the kubelet misreads in silence (a host part, a relative path) are refused here with the
//! reason.

use std::fmt;
use std::path::{Path, PathBuf};

/// Longest path that fits into a socket address, without its closing NUL.
const MAX_SOCKET_PATH: usize = 107;

/// A unix socket.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    path: PathBuf,
    deprecated: bool,
}

/// Why a text is no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Nothing was given.
    #[error("the endpoint is empty: give unix:///PATH")]
    Empty,
    /// A TCP endpoint, which the kubelet refuses in these words.
    #[error("only support unix socket endpoint")]
    NotUnix,
    /// Another scheme, which the kubelet refuses in these words.
    #[error("protocol {0:?} not supported")]
    Protocol(String),
    /// A path that cannot be the path of a socket.
    #[error("endpoint {text:?}: {why}")]
    Path {
        /// The endpoint as it was written.
        text: String,
        /// The fault in the text.
        why: String,
    },
}

impl Endpoint {
    /// Reads `unix:///path`, `unix:/path`, or a bare absolute path, which is deprecated. In the URL forms `%xx` is
    /// decoded and a query or fragment is dropped, as the kubelet does; a bare path is taken as it stands.
    ///
    /// # Errors
    /// See [`EndpointError`].
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        if text.is_empty() {
            return Err(EndpointError::Empty);
        }
        let bad = |why: String| EndpointError::Path { text: text.to_owned(), why };
        let Some((scheme, rest)) = split_scheme(text) else {
            if !text.starts_with('/') {
                return Err(bad("neither a URL nor an absolute path: give unix:///PATH".into()));
            }
            return Ok(Self { path: checked(text.to_owned()).map_err(bad)?, deprecated: true });
        };
        match scheme.as_str() {
            "unix" => {}
            "tcp" => return Err(EndpointError::NotUnix),
            _ => return Err(EndpointError::Protocol(scheme)),
        }
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let path = match rest.strip_prefix("//") {
            None => rest,
            Some(path) if path.is_empty() || path.starts_with('/') => path,
            Some(path) => {
                let host = path.split('/').next().unwrap_or_default();
                return Err(bad(format!("{host:?} stands where a host name would: three slashes start a path")));
            }
        };
        if path.is_empty() {
            return Err(bad("it names no socket".into()));
        }
        if !path.starts_with('/') {
            return Err(bad("the path must be absolute".into()));
        }
        let path = percent_decode(path).map_err(bad)?;
        Ok(Self { path: checked(path).map_err(bad)?, deprecated: false })
    }

    /// The endpoint of the socket at an absolute path, which is taken as it stands.
    ///
    /// # Errors
    /// Where no unix socket can have this path.
    pub fn of_path(path: &Path) -> Result<Self, EndpointError> {
        let text = path.to_string_lossy().into_owned();
        let bad = |why: String| EndpointError::Path { text: text.clone(), why };
        if path.to_str().is_none() {
            return Err(bad("the path is not UTF-8".into()));
        }
        if !path.is_absolute() {
            return Err(bad("the path must be absolute".into()));
        }
        Ok(Self { path: checked(text.clone()).map_err(bad)?, deprecated: false })
    }

    /// The path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Warning for the person who wrote the endpoint, if the form is deprecated. The program that reads the endpoint
    /// shows it once; client and server do not.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        self.deprecated.then(|| {
            format!("using {:?} as endpoint is deprecated, please consider using full url format {self}", self.path)
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix://{}", self.path.display())
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Endpoint {
    type Err = EndpointError;
    fn from_str(text: &str) -> Result<Self, EndpointError> {
        Self::parse(text)
    }
}

/// `scheme:rest` as in RFC 3986 §3.1, the scheme in lower case.
fn split_scheme(text: &str) -> Option<(String, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let mut letters = scheme.chars();
    let valid = letters.next().is_some_and(|c| c.is_ascii_alphabetic())
        && letters.all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    valid.then(|| (scheme.to_ascii_lowercase(), rest))
}

fn checked(path: String) -> Result<PathBuf, String> {
    if path.contains('\0') {
        return Err("the path contains a NUL".into());
    }
    if path.ends_with('/') {
        return Err("the path names a directory".into());
    }
    if path.len() > MAX_SOCKET_PATH {
        return Err(format!(
            "the path has {} bytes, a unix socket takes at most {MAX_SOCKET_PATH}: use a shorter one",
            path.len()
        ));
    }
    Ok(PathBuf::from(path))
}

fn percent_decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        if byte != b'%' {
            bytes.push(byte);
            rest = tail;
            continue;
        }
        let value = tail.get(..2).and_then(|digits| {
            let hex = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
            Some(hex(digits[0])? * 16 + hex(digits[1])?)
        });
        let Some(value) = value else {
            let shown = String::from_utf8_lossy(&rest[..rest.len().min(3)]).into_owned();
            return Err(format!("invalid URL escape {shown:?}"));
        };
        bytes.push(value);
        rest = &tail[2..];
    }
    String::from_utf8(bytes).map_err(|_| "the path is not UTF-8".into())
}

#[cfg(test)]
#[path = "endpoint_tests.rs"]
mod tests;
