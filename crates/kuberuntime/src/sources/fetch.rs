//! [`Fetch`]: how an address is asked. Over HTTP by [`probe`], or by whatever a test hands in.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

/// A request. Headers may be secret: `Debug` shows none.
#[derive(Clone)]
pub struct FetchRequest {
    /// Address.
    pub url: String,
    /// Headers, of which a name may stand there several times.
    pub headers: Vec<(String, String)>,
    /// The most bytes that an answer may have.
    pub limit: usize,
    /// How long it may take in all.
    pub timeout: Duration,
}

impl fmt::Debug for FetchRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FetchRequest").field("url", &shown(&self.url)).finish_non_exhaustive()
    }
}

/// Fetches the body of an answer of status 200; the error is for people, and shows no header.
pub type Fetch = Arc<dyn Fn(FetchRequest) -> BoxFuture<'static, Result<Vec<u8>, String>> + Send + Sync>;

/// Fetches over HTTP and HTTPS, with the server's certificate checked.
pub(super) fn over_http() -> Fetch {
    Arc::new(|request| {
        Box::pin(async move {
            let FetchRequest { url, headers, limit, timeout } = request;
            let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (&**name, &**value)).collect();
            probe::fetch(&url, &headers, limit, timeout).await.map_err(|error| error.to_string())
        })
    })
}

/// The address without what may be secret in it: user, password and query.
pub(super) fn shown(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let path = path.split(['?', '#']).next().unwrap_or_default();
    if scheme.is_empty() { format!("{host}{path}") } else { format!("{scheme}://{host}{path}") }
}
