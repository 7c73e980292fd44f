//! The status page of a node: a read-only view of its disk, images, pulls and pods for a browser. The server renders the
//! whole page; with scripts, parts are replaced as they change. Answers only GET, changes nothing, and shows no secret. `access`
//! decides which clients may read it. Started by `imagelet run` and `imagelet serve`.

mod access;
mod assets;
mod attention;
mod health;
mod history;
mod inventory;
mod live;
mod parts;
mod query;
mod report;
mod routes;
mod sharing;
mod state;
mod view;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use cluster::kubelet_api::{Client, Clients, Port, TlsFiles};
use hyper::service::service_fn;
use oci::Secret;
use tokio_util::sync::CancellationToken;

use access::Access;
pub use access::{TokenError, read_token};
pub use parts::PageParts;
use report::Reporter;
use routes::Routes;

/// The address of the page, and who may read it.
#[derive(Clone, Debug)]
pub struct PageAddress {
    /// Address of the listener.
    pub address: SocketAddr,
    /// Files for TLS; plain text without.
    pub tls: Option<TlsFiles>,
    /// The password of a reader who has no client certificate.
    pub token: Option<Secret>,
}

/// The page, which listens.
pub struct StatusPage {
    port: Port,
    access: Access,
    reporter: Arc<Reporter>,
    scheme: &'static str,
}

impl StatusPage {
    /// Listens.
    ///
    /// # Errors
    /// The address is not free, or a certificate cannot be read or made.
    pub async fn listen(at: PageAddress, parts: PageParts) -> io::Result<Self> {
        let certificates = at.tls.as_ref().is_some_and(|tls| tls.client_ca_file.is_some());
        let access = Access { token: at.token, certificates };
        let scheme = if at.tls.is_some() { "https" } else { "http" };
        let clients = if access.is_open() { Clients::Anonymous } else { Clients::Authenticated };
        let port = Port::listen("the status page", at.address, at.tls, clients).await?;
        Ok(Self { port, access, reporter: Arc::new(Reporter::new(parts)), scheme })
    }

    /// Returns the URL of the page.
    pub fn url(&self) -> String {
        format!("{}://{}/", self.scheme, self.port.address())
    }

    /// Answers until `stop`, and records the throughput of pulls meanwhile.
    pub async fn run(self, stop: &CancellationToken) {
        let Self { port, access, reporter, .. } = self;
        let routes = Arc::new(Routes::new(Arc::clone(&reporter), access, stop.clone()));
        let service = move |client: Arc<Client>| {
            let routes = Arc::clone(&routes);
            service_fn(move |request| {
                let (routes, client) = (Arc::clone(&routes), Arc::clone(&client));
                async move { Ok::<_, std::convert::Infallible>(routes.answer(&client, request).await) }
            })
        };
        tokio::join!(port.run(stop, service), reporter.remember(stop));
    }
}
