//! [`Access`]: the rules by which a request for the page is answered: the password or certificate of its reader. The port has
//! checked the name by which it was reached. Pure; called by [`super::routes`].

use std::io;
use std::path::Path;

use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oci::Secret;

/// The shortest token: shorter ones can be guessed.
const SHORTEST_TOKEN: usize = 16;

/// The rules of a page.
#[derive(Debug)]
pub(super) struct Access {
    pub(super) token: Option<Secret>,
    /// Client certificates are believed.
    pub(super) certificates: bool,
}

/// Reason for which a token file has no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read as text.
    #[error("read {path}")]
    Read {
        /// Path of the file.
        path: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The file has fewer than 16 characters, or other ones than printable ASCII without spaces.
    #[error("{0}: a token of at least {SHORTEST_TOKEN} characters without spaces was expected, and nothing else")]
    Unusable(String),
}

/// Reads the token of a file. Blocks.
///
/// # Errors
/// The file cannot be read, or its content is no token.
pub fn read_token(path: &Path) -> Result<Secret, TokenError> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|source| TokenError::Read { path: name.clone(), source })?;
    let token = text.trim_end_matches(['\r', '\n']);
    if token.len() < SHORTEST_TOKEN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(TokenError::Unusable(name));
    }
    Ok(Secret::new(token))
}

impl Access {
    /// Returns true if every client that reaches the page may read it.
    pub(super) fn is_open(&self) -> bool {
        self.token.is_none() && !self.certificates
    }

    /// Judges a request by its `Authorization`, and by whether TLS has verified a client certificate.
    ///
    /// # Errors
    /// The status and the line of the refusal.
    pub(super) fn judge(&self, authorization: Option<&str>, certified: bool) -> Result<(), (StatusCode, &'static str)> {
        if self.is_open() || self.certificates && certified {
            return Ok(());
        }
        match (&self.token, authorization.and_then(password)) {
            (Some(token), Some(given)) if equal(token.expose(), given.expose()) => Ok(()),
            (Some(_), _) => Err((StatusCode::UNAUTHORIZED, "the token is needed, as the password of any user")),
            (None, _) => Err((StatusCode::FORBIDDEN, "a client certificate is needed")),
        }
    }
}

/// Returns the token of a request: a bearer token, or the password of any user.
fn password(authorization: &str) -> Option<Secret> {
    let (scheme, value) = authorization.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(Secret::new(value.trim()));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(value.trim()).ok()?).ok()?;
    text.split_once(':').map(|(_, password)| Secret::new(password))
}

/// Compares in constant time.
fn equal(token: &str, given: &str) -> bool {
    let different = token.bytes().zip(given.bytes()).fold(0_u8, |sum, (a, b)| sum | (a ^ b));
    std::hint::black_box(different) == 0 && token.len() == given.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn basic(user: &str, password: &str) -> String {
        format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
    }

    #[test]
    fn a_token_or_a_certificate_lets_in() {
        let judge = |access: &Access, header: Option<&str>, certified| {
            access.judge(header, certified).map_err(|(status, _)| status.as_u16())
        };
        let token = Access { token: Some(Secret::new(TOKEN)), certificates: false };
        let cases = [
            (None, Err(401)),
            (Some(format!("Bearer {TOKEN}")), Ok(())),
            (Some(basic("anybody", TOKEN)), Ok(())),
            (Some(basic("", TOKEN)), Ok(())),
            (Some(basic(TOKEN, "")), Err(401)),
            (Some(format!("Bearer {TOKEN}x")), Err(401)),
            (Some(format!("Bearer {}", &TOKEN[1..])), Err(401)),
            (Some("Bearer".to_owned()), Err(401)),
            (Some("Basic !".to_owned()), Err(401)),
            (Some(format!("Digest {TOKEN}")), Err(401)),
        ];
        for (header, want) in cases {
            assert_eq!(judge(&token, header.as_deref(), false), want, "{header:?}");
        }
        // Client certificates are not accepted: one that is presented counts for nothing.
        assert_eq!(judge(&token, None, true), Err(401));
        let certificates = Access { token: None, certificates: true };
        assert_eq!((judge(&certificates, None, true), judge(&certificates, None, false)), (Ok(()), Err(403)));
        let both = Access { token: Some(Secret::new(TOKEN)), ..certificates };
        let header = basic("x", TOKEN);
        assert_eq!((judge(&both, None, true), judge(&both, Some(&header), false)), (Ok(()), Ok(())));
        assert_eq!(judge(&both, None, false), Err(401));
    }

    #[test]
    fn a_token_file_has_one_token_in_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        let read = |text: &str| {
            std::fs::write(&path, text).expect("write");
            read_token(&path).map(|token| token.expose().to_owned())
        };
        assert_eq!(read("0123456789abcdef\n").expect("a token"), TOKEN);
        for text in ["", "short\n", "0123456789 abcdef", "0123456789abcdef\nsecond line\n"] {
            let error = read(text).expect_err(text).to_string();
            assert!(error.ends_with("and nothing else") && !error.contains("0123"), "{error}");
        }
        std::fs::remove_file(&path).expect("remove");
        assert!(read_token(&path).is_err());
    }
}
