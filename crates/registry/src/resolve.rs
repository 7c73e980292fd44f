//! Addresses of names, for the connections of one host: to the registry itself, whose addresses are remembered so that
//! the origin of an answer is known, and to the targets of its redirects, of whose addresses only those are used
//! that [`crate::target`] allows. Since the connection is made with these very addresses, a second resolution with another
//! result has no effect. `transport` makes both resolvers.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};

use base::lock::Mutex;
use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::Name;
use tower::Service;
use url::Url;

use crate::proxy::HostProxies;
use crate::target::{AllowedTarget, RedirectingRegistry, TargetSource};

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Returns the addresses of a name.
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

/// The network around one registry host: its resolver, its proxies, and the targets that it may send us to.
pub(crate) struct HostNetwork {
    base: Url,
    lookup: Lookup,
    proxies: Arc<HostProxies>,
    allowed: Vec<AllowedTarget>,
    seen: Mutex<ObservedAddresses>,
}

#[derive(Default)]
struct ObservedAddresses {
    /// The addresses of the registry's name when it was last connected to.
    addresses: Vec<IpAddr>,
    /// The address that it answered from.
    peer: Option<IpAddr>,
}

/// No address of a name may be connected to.
#[derive(Debug, thiserror::Error)]
#[error("the name leads to {0}")]
pub(crate) struct RefusedTarget(pub(crate) &'static str);

impl HostNetwork {
    pub(crate) fn new(base: Url, lookup: Lookup, proxies: Arc<HostProxies>, allowed: Vec<AllowedTarget>) -> Self {
        Self { base, lookup, proxies, allowed, seen: Mutex::default() }
    }

    /// The registry itself answered from this address, which may be a proxy's.
    pub(crate) fn answered(&self, from: Option<SocketAddr>) {
        let Some(from) = from.map(|from| from.ip().to_canonical()) else { return };
        let mut seen = self.seen.lock();
        if seen.addresses.contains(&from) {
            seen.peer = Some(from);
        }
    }

    /// The proxy that a URL is asked for through.
    pub(crate) fn proxy_of(&self, url: &Url) -> Option<&Url> {
        self.proxies.of(url)
    }

    pub(crate) fn proxies(&self) -> &HostProxies {
        &self.proxies
    }

    /// Judges a URL that the registry names, by its text: see [`RedirectingRegistry::check`].
    ///
    /// # Errors
    /// The reason, as a text.
    pub(crate) fn check(&self, to: &Url, why: TargetSource) -> Result<(), String> {
        self.registry().check(to, why)
    }

    fn registry(&self) -> RedirectingRegistry<'_> {
        let peer = self.seen.lock().peer;
        RedirectingRegistry { base: &self.base, peer, allowed: &self.allowed, proxies: &self.proxies }
    }

    async fn find(&self, name: String) -> io::Result<Vec<IpAddr>> {
        let found = (self.lookup)(name).await?;
        Ok(found.into_iter().map(|ip| ip.to_canonical()).collect())
    }
}

/// The addresses of names for the connections of one HTTP client: to the registry itself, or to where it sends us.
#[derive(Clone)]
pub(crate) struct Resolver {
    network: Arc<HostNetwork>,
    own_origin: bool,
}

impl Resolver {
    pub(crate) fn new(network: Arc<HostNetwork>, own_origin: bool) -> Self {
        Self { network, own_origin }
    }

    pub(crate) fn network(&self) -> Arc<HostNetwork> {
        Arc::clone(&self.network)
    }

    async fn addresses(self, name: String) -> Result<Vec<IpAddr>, BoxError> {
        let Self { network, own_origin } = self;
        let found = network.find(name.clone()).await?;
        if own_origin {
            if network.base.host_str().is_some_and(|own| own.eq_ignore_ascii_case(&name)) {
                network.seen.lock().addresses.clone_from(&found);
            }
            return Ok(found);
        }
        Ok(network.registry().choose(&name, found).map_err(RefusedTarget)?)
    }
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let resolver = self.clone();
        Box::pin(async move {
            let found = resolver.addresses(name.as_str().to_owned()).await?;
            // The port is filled in by the connector.
            let found: Vec<_> = found.into_iter().map(|ip| SocketAddr::new(ip, 0)).collect();
            Ok(found.into_iter())
        })
    }
}
