//! Credentials for a registry, and [`Secret`], which can be neither printed nor serialised. Who may use which
//! credential is decided in `credentials`.

use std::fmt;

use base64::Engine as _;
use zeroize::Zeroize as _;

use crate::{Algorithm, Digest};

/// A secret text. It has no `Display`, no `Serialize`, its `Debug` shows nothing of it, and its memory is wiped when
/// it goes.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one place that puts it on the wire.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns true if it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The ID of a credential: equal credentials have equal IDs, and no ID shows its credential.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CredentialId(Digest);

impl CredentialId {
    /// Returns the ID of pulls without a credential.
    #[must_use]
    pub fn anonymous() -> Self {
        RegistryAuth::default().id()
    }
}

impl fmt::Debug for CredentialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialId(…)")
    }
}

/// The credential of one pull, with the fields of CRI's `AuthConfig`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RegistryAuth {
    /// User name; may be empty.
    pub username: String,
    /// Password or access token that goes with the user name.
    pub password: Secret,
    /// `base64(username:password)`, used when user name and password are empty.
    pub auth: Secret,
    /// The registry that this credential is for; where set, it is sent to no other host.
    pub server_address: String,
    /// OAuth2 refresh token that a token service turns into an access token.
    pub identity_token: Secret,
    /// Bearer token that is sent to the registry as it is.
    pub registry_token: Secret,
}

impl RegistryAuth {
    /// A user name and a password.
    #[must_use]
    pub fn basic(username: impl Into<String>, password: impl Into<String>) -> Self {
        Self { username: username.into(), password: Secret::new(password), ..Self::default() }
    }

    /// Returns true if it has no secret, so that the pull is anonymous.
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        self.username.is_empty()
            && self.password.is_empty()
            && self.auth.is_empty()
            && self.identity_token.is_empty()
            && self.registry_token.is_empty()
    }

    /// Returns the ID by which this credential is compared with others. All anonymous credentials have the same one.
    #[must_use]
    pub fn id(&self) -> CredentialId {
        let mut hasher = Algorithm::Sha256.hasher();
        if !self.is_anonymous() {
            let parts = [
                self.username.as_str(),
                self.password.expose(),
                self.auth.expose(),
                self.server_address.as_str(),
                self.identity_token.expose(),
                self.registry_token.expose(),
            ];
            for part in parts {
                hasher.update(&(part.len() as u64).to_le_bytes());
                hasher.update(part.as_bytes());
            }
        }
        CredentialId(hasher.finish())
    }

    /// User name and password, from their own fields or out of `auth` (base64 with or without padding, split at the
    /// first colon). `None` when there is neither, or when `auth` cannot be decoded.
    #[must_use]
    pub fn user_and_password(&self) -> Option<(String, Secret)> {
        if !self.username.is_empty() || !self.password.is_empty() {
            return Some((self.username.clone(), self.password.clone()));
        }
        let text = self.auth.expose().trim_end_matches('=');
        if text.is_empty() {
            return None;
        }
        let decoded = base64::engine::general_purpose::STANDARD_NO_PAD.decode(text).ok()?;
        let decoded = String::from_utf8(decoded).ok()?;
        let decoded = Secret::new(decoded.trim_end_matches('\0'));
        let (user, password) = decoded.expose().split_once(':')?;
        Some((user.to_owned(), Secret::new(password)))
    }
}

impl fmt::Debug for RegistryAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_anonymous() { "RegistryAuth(anonymous)" } else { "RegistryAuth(…)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_secret() {
        let auth = RegistryAuth {
            username: "ada".into(),
            password: Secret::new("swordfish"),
            auth: Secret::new("c3dvcmRmaXNo"),
            server_address: "r.example".into(),
            identity_token: Secret::new("idtok"),
            registry_token: Secret::new("regtok"),
        };
        let shown = format!("{auth:?} {:?}", auth.password);
        for secret in ["ada", "swordfish", "c3dv", "idtok", "regtok"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }

    #[test]
    fn different_credentials_have_different_ids() {
        let id = |user: &str, password: &str| RegistryAuth::basic(user, password).id();
        assert_eq!(id("ab", "c"), id("ab", "c"));
        assert_ne!(id("ab", "c"), id("a", "bc"), "no other split of the same text");
        assert_ne!(id("ab", "c"), CredentialId::anonymous());
        let token = |token: &str| RegistryAuth { registry_token: Secret::new(token), ..RegistryAuth::default() };
        assert_ne!(token("c").id(), token("d").id());
        let elsewhere = RegistryAuth { server_address: "r.example".into(), ..RegistryAuth::default() };
        assert_eq!(elsewhere.id(), CredentialId::anonymous(), "there is no secret in it");
        assert!(!format!("{:?}", id("ada", "swordfish")).contains(|c: char| c.is_ascii_digit()));
    }

    #[test]
    fn auth_field_is_decoded() {
        let cases = [
            ("Zm9vOmJhcg==", Some(("foo", "bar"))),
            ("Zm9vOmJhcg", Some(("foo", "bar"))),
            ("Zm9vOmI6YXI=", Some(("foo", "b:ar"))),
            ("cGFudHM=", None),
            ("p ants", None),
            ("", None),
        ];
        for (text, want) in cases {
            let auth = RegistryAuth { auth: Secret::new(text), ..RegistryAuth::default() };
            let got = auth.user_and_password();
            let got = got.as_ref().map(|(u, p)| (u.as_str(), p.expose()));
            assert_eq!(got, want, "{text}");
        }
    }
}
