//! The status page of a node: a read-only picture of its disk, images, pulls and pods for people with a browser. The server writes the whole
//! page; with scripts, parts that change are replaced as they do. It answers GET alone, changes nothing, and shows no secret. Where a
//! browser may come from is decided in `access`. Started by `imagelet run` and `imagelet serve`.

mod access;
mod assets;
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

use axum::Extension;
use hyper_util::service::TowerToHyperService;
use kubelet_api::{Port, TlsFiles};
use oci::Secret;
use tokio_util::sync::CancellationToken;

use access::{Access, Certified};
pub use access::{TokenError, read_token};
pub use parts::PageParts;
use report::Reporter;

/// The address of the page, and who may read it.
#[derive(Clone, Debug)]
pub struct PageAddress {
    /// Where it listens.
    pub address: SocketAddr,
    /// In clear text without.
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
        let (access, scheme) = (
            Access { token: at.token, certificates, tls: at.tls.is_some() },
            if at.tls.is_some() { "https" } else { "http" },
        );
        let port = Port::listen("the status page", &[at.address], at.tls).await?;
        Ok(Self { port, access, reporter: Arc::new(Reporter::new(parts)), scheme })
    }

    /// The URL of the page.
    ///
    /// # Errors
    /// The kernel does not say where it listens.
    pub fn url(&self) -> io::Result<String> {
        Ok(format!("{}://{}/", self.scheme, self.port.address()?))
    }

    /// Answers until `stop`, and remembers how fast layers came meanwhile.
    pub async fn run(self, stop: &CancellationToken) {
        let Self { port, access, reporter, .. } = self;
        let routes = routes::all(Arc::clone(&reporter), Arc::new(access), stop.clone());
        let service = move |client: Option<kubelet_api::ClientCertificate>| {
            TowerToHyperService::new(routes.clone().layer(Extension(Certified(client.is_some()))))
        };
        tokio::join!(port.run(stop, service), reporter.remember(stop));
    }
}
