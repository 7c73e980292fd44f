//! Names to addresses, for the connections of one host: to the registry itself, whose addresses are remembered so that it is known
//! where an answer came from, and to places that it sends us to, of whose addresses only those are used that it may send us to. Since
//! this is what the connection is made with, a name that leads elsewhere the second time gains nothing. Names of proxies are
//! the administrator's. The `transport` makes both.

use parking_lot::Mutex;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::Url;

use crate::proxy::Proxies;
use crate::target::{self, AllowedTarget};

/// Asks for the addresses of a name.
pub type Lookup = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync>;

/// The system's resolver.
#[must_use]
pub fn system_lookup() -> Lookup {
    Arc::new(|name| {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    })
}

/// What both resolvers of a host share.
pub(crate) struct Home {
    base: Url,
    lookup: Lookup,
    proxies: Arc<Proxies>,
    allowed: Arc<[AllowedTarget]>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// What the registry's name was found to stand for when it was last connected to.
    addresses: Vec<IpAddr>,
    /// The address that it answered from.
    peer: Option<IpAddr>,
}

/// No address of a name may be gone to.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) &'static str);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the name leads to {}", self.0)
    }
}

impl std::error::Error for Refused {}

impl Home {
    pub(crate) fn new(base: Url, lookup: Lookup, proxies: Arc<Proxies>, allowed: Arc<[AllowedTarget]>) -> Self {
        Self { base, lookup, proxies, allowed, seen: Mutex::default() }
    }

    fn seen(&self) -> parking_lot::MutexGuard<'_, Seen> {
        self.seen.lock()
    }

    /// The registry itself answered from this address, which may be a proxy's.
    pub(crate) fn answered(&self, from: Option<SocketAddr>) {
        let Some(from) = from.map(|from| from.ip().to_canonical()) else { return };
        let mut seen = self.seen();
        if seen.addresses.contains(&from) {
            seen.peer = Some(from);
        }
    }

    /// The proxy that a URL is asked for through.
    pub(crate) fn proxy_of(&self, url: &Url) -> Option<&Url> {
        self.proxies.of(url)
    }

    pub(crate) fn proxies(&self) -> &Proxies {
        &self.proxies
    }

    pub(crate) fn has_proxies(&self) -> bool {
        !self.proxies.is_empty()
    }

    /// Whether a URL that the registry names may be gone to.
    ///
    /// # Errors
    /// The reason, as a text.
    pub(crate) fn check(&self, to: &Url, why: target::Why) -> Result<(), String> {
        let peer = self.seen().peer;
        target::check(target::From { base: &self.base, peer }, to, why, &self.allowed)?;
        // A proxy's own name must not be a way around.
        let at_proxy = to.host_str().is_some_and(|host| self.proxies.has_host(host)) && to.host() != self.base.host();
        if at_proxy && self.proxies.of(to).is_none() {
            return Err("to a proxy".into());
        }
        Ok(())
    }

    async fn find(&self, name: String) -> io::Result<Vec<IpAddr>> {
        let found = (self.lookup)(name).await?;
        Ok(found.into_iter().map(|ip| ip.to_canonical()).collect())
    }
}

/// Resolves for connections to the registry itself.
pub(crate) struct AtHome(pub(crate) Arc<Home>);

/// Resolves for connections to where it sends us.
pub(crate) struct Elsewhere(pub(crate) Arc<Home>);

fn addresses(found: Vec<IpAddr>) -> Addrs {
    // The port is filled in by the connector.
    Box::new(found.into_iter().map(|ip| SocketAddr::new(ip, 0)))
}

impl Resolve for AtHome {
    fn resolve(&self, name: Name) -> Resolving {
        let home = Arc::clone(&self.0);
        Box::pin(async move {
            let found = home.find(name.as_str().to_owned()).await?;
            if home.base.host_str().is_some_and(|own| own.eq_ignore_ascii_case(name.as_str())) {
                home.seen().addresses.clone_from(&found);
            }
            Ok(addresses(found))
        })
    }
}

impl Resolve for Elsewhere {
    fn resolve(&self, name: Name) -> Resolving {
        let home = Arc::clone(&self.0);
        Box::pin(async move {
            let found = home.find(name.as_str().to_owned()).await?;
            if home.proxies.has_host(name.as_str()) {
                return Ok(addresses(found));
            }
            let peer = home.seen().peer;
            let from = target::From { base: &home.base, peer };
            let chosen = target::choose(from, name.as_str(), found, &home.allowed).map_err(Refused)?;
            Ok(addresses(chosen))
        })
    }
}
