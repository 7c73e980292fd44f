//! Settings of the status page: where it listens, and which readers it permits.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::json;

use crate::config::declare::settings;
use crate::config::kind::{parsed, path, unset};

settings! {
    /// The status page of an agent.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct StatusPage() {
        Node {
            /// `None`: no page.
            address: Option<SocketAddr> = None =>
                "statusAddress", "status-address", unset(parsed(
                    "ADDR:PORT",
                    "an address and port such as 127.0.0.1:10260",
                    |text| text.parse::<SocketAddr>().map_err(|error| error.to_string()),
                    |address| json!(address),
                )),
                "Address on which an agent serves a read-only status page for browsers; beyond loopback only over TLS, and for \
                 readers with the token or a client certificate [default: none]";
            token_file: Option<PathBuf> = None =>
                "statusTokenFile", "status-token-file", unset(path("FILE")),
                "File with the token of the status page's readers, at least 16 characters: the password of any user in a \
                 browser, or a bearer token [default: none]";
            client_ca_file: Option<PathBuf> = None =>
                "statusClientCAFile", "status-client-ca-file", unset(path("FILE")),
                "Authorities whose client certificates may read the status page, which is served over TLS then \
                 [default: none]";
            cert_file: Option<PathBuf> = None =>
                "statusTLSCertFile", "status-tls-cert-file", unset(path("FILE")),
                "Serving certificate of the status page, with its chain, which is served over TLS then [default: beyond \
                 loopback a self-signed one in the root]";
            key_file: Option<PathBuf> = None =>
                "statusTLSPrivateKeyFile", "status-tls-private-key-file", unset(path("FILE")),
                "Key of that certificate [default: none]";
        }
    }
}

impl StatusPage {
    /// Returns true if the page is served over TLS only.
    pub(crate) fn has_tls(&self) -> bool {
        let beyond = self.address.is_some_and(|address| !address.ip().is_loopback());
        beyond || self.cert_file.is_some() || self.client_ca_file.is_some()
    }
}
