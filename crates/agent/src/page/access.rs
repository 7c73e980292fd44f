//! [`Access`]: the rules by which a request for the page is answered: the name by which it was reached, the password or certificate of its
//! reader. A page of another origin cannot read answers, and a name that somebody points at this address reaches none. Pure; called by
//! [`super::routes`].

use std::io;
use std::net::IpAddr;
use std::path::Path;

use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oci::Secret;

/// The shortest token: shorter ones can be guessed.
const SHORTEST_TOKEN: usize = 16;

/// True for a connection whose client certificate TLS has verified.
#[derive(Clone, Copy, Debug)]
pub(super) struct Certified(pub(super) bool);

/// The rules of a page.
#[derive(Debug)]
pub(super) struct Access {
    pub(super) token: Option<Secret>,
    /// Client certificates are believed.
    pub(super) certificates: bool,
    pub(super) tls: bool,
}

/// Why a token file has no token.
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
    /// Judges a request by its headers.
    ///
    /// # Errors
    /// The status and the line of the refusal.
    pub(super) fn judge(
        &self,
        host: Option<&str>,
        authorization: Option<&str>,
        certified: bool,
    ) -> Result<(), (StatusCode, &'static str)> {
        if !host.is_some_and(|host| self.is_own_host(host)) {
            return Err((
                StatusCode::MISDIRECTED_REQUEST,
                "this page is reached by an IP address or as localhost, not by that name",
            ));
        }
        if self.token.is_none() && !self.certificates || self.certificates && certified {
            return Ok(());
        }
        match (&self.token, authorization.and_then(password)) {
            (Some(token), Some(given)) if equal(token.expose(), given.expose()) => Ok(()),
            (Some(_), _) => Err((StatusCode::UNAUTHORIZED, "the token is needed, as the password of any user")),
            (None, _) => Err((StatusCode::FORBIDDEN, "a client certificate is needed")),
        }
    }

    /// Returns true if no name of somebody else brought the reader here. Under TLS the browser has verified the name.
    fn is_own_host(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((address, "")) => address,
            Some((address, port)) if port.strip_prefix(':').is_some_and(is_port) => address,
            Some(_) => return false,
            None => match host.split_once(':') {
                Some((name, port)) if is_port(port) => name,
                Some(_) => return false,
                None => host,
            },
        };
        let is_name =
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        name.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost") || self.tls && is_name
    }
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

/// The token of a request: a bearer token, or the password of any user.
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

/// Compares in a time that says nothing of where they differ.
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
    fn names_of_somebody_else_reach_nothing() {
        let plain = Access { token: None, certificates: false, tls: false };
        let tls = Access { token: None, certificates: false, tls: true };
        let cases = [
            ("127.0.0.1:10260", true, true),
            ("127.0.0.1", true, true),
            ("[::1]:10260", true, true),
            ("[::1]", true, true),
            ("localhost:8080", true, true),
            ("LOCALHOST", true, true),
            ("192.0.2.7:1", true, true),
            ("edge.example:10260", false, true),
            ("localhost.evil.example", false, true),
            ("127.0.0.1.evil.example:10260", false, true),
            ("", false, false),
            (":10260", false, false),
            ("localhost:port", false, false),
            ("[::1]x", false, false),
            ("[::1", false, false),
            ("a b", false, false),
            ("evil@127.0.0.1", false, false),
        ];
        for (host, in_clear_text, over_tls) in cases {
            let of = |access: &Access| access.judge(Some(host), None, false).is_ok();
            assert_eq!((of(&plain), of(&tls)), (in_clear_text, over_tls), "{host}");
        }
        assert!(plain.judge(None, None, false).is_err(), "no Host at all");
    }

    #[test]
    fn a_token_or_a_certificate_lets_in() {
        let host = Some("127.0.0.1");
        let judge = |access: &Access, header: Option<&str>, certified| {
            access.judge(host, header, certified).map_err(|(status, _)| status.as_u16())
        };
        let token = Access { token: Some(Secret::new(TOKEN)), certificates: false, tls: true };
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
        // Nobody asked for certificates: that of a client says nothing.
        assert_eq!(judge(&token, None, true), Err(401));
        let certificates = Access { token: None, certificates: true, tls: true };
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
