//! [`PodTokens`]: service account tokens for credential providers. Tokens for an API server's pods are requested from that server; those
//! for local pods are files that another program writes into a [`TokenDirectory`]. Issues no token itself. A file is read each time, so
//! that a renewed token takes effect. Called by the keyring's providers.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cluster::tokens::{TokenManager, TokenRequest};
use credentials::exec::{TokenError, TokenSource};
use credentials::{Requester, ServiceAccount};
use futures::future::BoxFuture;
use oci::Secret;

/// Maximum size of a token in bytes.
const MAX_TOKEN: u64 = 1 << 20;

/// Tokens of pods, by the origin of their service accounts.
pub(crate) struct PodTokens {
    directory: Option<TokenDirectory>,
    server: Option<Arc<TokenManager>>,
}

impl PodTokens {
    /// Takes tokens from files for local pods, and from an API server for the server's pods. `None` if there is neither.
    pub(crate) fn new(directory: Option<PathBuf>, server: Option<Arc<TokenManager>>) -> Option<Self> {
        let directory = directory.map(|directory| TokenDirectory { directory });
        (directory.is_some() || server.is_some()).then_some(Self { directory, server })
    }

    fn server(&self) -> Result<&TokenManager, TokenError> {
        self.server.as_deref().ok_or_else(nothing)
    }
}

impl TokenSource for PodTokens {
    fn account<'a>(&'a self, account: &'a ServiceAccount) -> BoxFuture<'a, Result<ServiceAccount, TokenError>> {
        Box::pin(async move {
            let read = self.server()?.account(&account.namespace, &account.name).await;
            let read = read.map_err(|error| TokenError(error.to_string()))?;
            Ok(ServiceAccount { uid: read.uid, annotations: read.annotations, ..account.clone() })
        })
    }

    fn token<'a>(
        &'a self,
        account: &'a ServiceAccount,
        audience: &'a str,
        requester: &'a Requester,
    ) -> BoxFuture<'a, Result<Secret, TokenError>> {
        Box::pin(async move {
            if !account.origin.vouches() {
                return self.directory.as_ref().ok_or_else(nothing)?.token(account, audience).await;
            }
            // As in the kubelet: a token of this account and no other of its name, for this pod, with the server's default lifetime.
            let request = TokenRequest {
                namespace: account.namespace.clone(),
                account: account.name.clone(),
                account_uid: account.uid.clone(),
                pod: requester.name.clone(),
                pod_uid: requester.uid.clone(),
                audience: audience.to_owned(),
                expiration: None,
            };
            self.server()?.token(&request).await.map_err(|error| TokenError(error.to_string()))
        })
    }
}

fn nothing() -> TokenError {
    TokenError("there is nothing here that makes such tokens".to_owned())
}

/// `DIR/NAMESPACE/NAME/AUDIENCE`.
#[derive(Clone, Debug)]
struct TokenDirectory {
    directory: PathBuf,
}

impl TokenDirectory {
    /// Returns the path of the token. The audience is mostly a URL: `/` and `:` are written as `_`.
    fn path(&self, account: &ServiceAccount, audience: &str) -> Result<PathBuf, TokenError> {
        let audience = audience.replace(['/', ':'], "_");
        let mut path = self.directory.clone();
        for part in [account.namespace.as_str(), account.name.as_str(), audience.as_str()] {
            if part.is_empty() || part == "." || part == ".." || part.contains(['/', '\0']) {
                return Err(TokenError(format!("there is no file for a token of {part:?}")));
            }
            path.push(part);
        }
        Ok(path)
    }

    async fn token(&self, account: &ServiceAccount, audience: &str) -> Result<Secret, TokenError> {
        let path = self.path(account, audience)?;
        let read = tokio::task::spawn_blocking(move || read(&path).map_err(|error| (path, error))).await;
        match read {
            Ok(Ok(token)) => Ok(token),
            Ok(Err((path, error))) => Err(TokenError(format!("read token {}: {error}", path.display()))),
            Err(_) => Err(TokenError("read token: the reader panicked".to_owned())),
        }
    }
}

/// Reads the token in the file: one line, without its line end.
fn read(path: &Path) -> io::Result<Secret> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_TOKEN + 1).read_to_string(&mut text).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => io::Error::other("it is not UTF-8 text"),
        _ => error,
    })?;
    let token = text.trim_end();
    if text.len() as u64 > MAX_TOKEN || token.is_empty() || token.contains(char::is_whitespace) {
        return Err(io::Error::other("it is no token"));
    }
    Ok(Secret::new(token))
}

#[cfg(test)]
mod tests {
    use credentials::Origin;

    use super::*;

    fn account(namespace: &str, name: &str) -> ServiceAccount {
        ServiceAccount { namespace: namespace.into(), name: name.into(), ..ServiceAccount::default() }
    }

    #[tokio::test]
    async fn tokens_lie_by_account_and_audience() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let tokens = PodTokens::new(Some(directory.path().to_owned()), None).expect("a directory");
        let place = directory.path().join("shop/web");
        std::fs::create_dir_all(&place).expect("made");
        std::fs::write(place.join("https___registry.example_5000"), "t0ken\n").expect("written");
        let requester = Requester::default();
        let audience = "https://registry.example:5000";
        let token = tokens.token(&account("shop", "web"), audience, &requester).await.expect("found");
        assert_eq!(token.expose(), "t0ken");
        std::fs::write(place.join("https___registry.example_5000"), "renewed").expect("written");
        let token = tokens.token(&account("shop", "web"), audience, &requester).await.expect("found");
        assert_eq!(token.expose(), "renewed");

        for (account, audience, want) in [
            (account("shop", "other"), audience, "No such file"),
            (account("..", "web"), audience, "there is no file for a token of \"..\""),
            (account("shop", "web/../web"), audience, "there is no file for"),
            (account("shop", "web"), "..", "there is no file for"),
            (account("shop", "web"), "", "there is no file for"),
        ] {
            let error = tokens.token(&account, audience, &requester).await.expect_err(want).to_string();
            assert!(error.contains(want), "{error}");
        }
        for bad in ["", "\n", "two words", "\u{0}\u{1} \n x"] {
            std::fs::write(place.join("a"), bad).expect("written");
            let error = tokens.token(&account("shop", "web"), "a", &requester).await.expect_err("refused").to_string();
            assert!(error.ends_with("it is no token"), "{error}");
        }
        std::fs::write(place.join("a"), [0xff, b's', b'3']).expect("written");
        let error = tokens.token(&account("shop", "web"), "a", &requester).await.expect_err("refused").to_string();
        assert!(error.ends_with("it is not UTF-8 text"), "{error}");
        // A token in a file is not used for an account of an API server.
        let of_server = ServiceAccount { origin: Origin::ApiServer, ..account("shop", "web") };
        for error in [
            tokens.token(&of_server, audience, &requester).await.expect_err("no server").to_string(),
            tokens.account(&of_server).await.expect_err("no server").to_string(),
        ] {
            assert!(error.contains("nothing here that makes such tokens"), "{error}");
        }
        assert!(PodTokens::new(None, None).is_none());
    }
}
