//! The kubelet's port of this node: `/containerLogs`, `/exec`, `/attach`, `/portForward`, `/pods`, `/healthz`, `/metrics`,
//! `/metrics/resource` and `/stats/summary` over TLS, for clients that the API server authorizes. Runs no pod and sends no request
//! to the API server: its sources and an [`Authority`] are passed in. Called by `imagelet run` on a node of a cluster.

mod access;
pub mod admission;
mod answer;
mod authority;
mod carry;
mod certificate;
mod host;
mod logs;
mod machine;
mod parts;
mod path;
mod pods;
mod port;
mod query;
mod route;
mod routes;
mod stream_address;
mod streams;
mod subject;
mod summary;
mod tls;
mod unread;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper::service::service_fn;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use authority::{Access, Authority, AuthorityError, Identity};
pub use certificate::ServerNames;
pub use parts::Parts;
pub use path::path_segments;
pub use port::{Client, ClientCertificate, Clients, Port};
pub use stream_address::{StreamAddress, StreamAddressError};
pub use tls::{ServingCertificate, TlsFiles};
pub use unread::UnreadLimit;

use access::Gate;
use routes::{Asker, Routes};

/// The port, which listens.
pub struct KubeletApi {
    port: Port,
    routes: Arc<Routes>,
}

impl KubeletApi {
    /// Listens at the first of `addresses` at which that is possible.
    ///
    /// # Errors
    /// None of the addresses is free, or a certificate cannot be read or made.
    pub async fn listen(addresses: &[SocketAddr], parts: Parts) -> io::Result<Self> {
        let port =
            Port::listen("the kubelet's port", addresses, Some(parts.tls.clone()), Clients::Authenticated).await?;
        let gate = Gate::new(Arc::clone(&parts.authority));
        let (tracker, stop) = (TaskTracker::new(), CancellationToken::new());
        let routes = Routes { parts, gate, tracker, stop, started: Timestamp::now() };
        Ok(Self { port, routes: Arc::new(routes) })
    }

    /// Returns the address of the listener.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Answers until `stop`. Streams end with it.
    pub async fn run(self, stop: &CancellationToken) {
        let Self { port, routes } = self;
        let of = Arc::clone(&routes);
        let service = move |client: Arc<Client>| {
            let certified = client.certificate().and_then(|certificate| subject::identity(certificate));
            let asker = Arc::new(Asker { client, certified });
            let routes = Arc::clone(&of);
            service_fn(move |request| {
                let (routes, asker) = (Arc::clone(&routes), Arc::clone(&asker));
                async move { Ok::<_, std::convert::Infallible>(routes.answer(&asker, request).await) }
            })
        };
        port.run(stop, service).await;
        routes.stop.cancel();
        routes.tracker.close();
        routes.tracker.wait().await;
    }
}

#[cfg(test)]
mod api_tests;
