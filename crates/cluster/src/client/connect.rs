//! The connections below a client: HTTP/2 where the server speaks it, with pings, so that watches share one connection and a dead
//! one is noticed. No retries. Called by [`super::kubeconfig`].

use std::time::Duration;

use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::ConfigExt;
use tower::{BoxError, ServiceBuilder};

use super::patience::Patience;

/// Longest time to establish a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Interval of pings on a connection, and the timeout of their answers.
const PING: Duration = Duration::from_secs(15);

/// Creates the client of this configuration.
pub(super) fn service(config: &Config) -> Result<kube::Client, kube::Error> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT));
    tcp.set_keepalive(Some(PING));
    tcp.set_nodelay(true);
    let mut tls = HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = name.clone().try_into().map_err(|error| kube::Error::Service(BoxError::from(error)))?;
        tls = tls.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let connections = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(PING)
        .http2_keep_alive_timeout(PING)
        .http2_keep_alive_while_idle(true)
        .build(tls.enable_all_versions().wrap_connector(tcp));
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .layer_fn(Patience::new)
        .map_err(BoxError::from)
        .service(connections);
    Ok(kube::Client::new(service, config.default_namespace.clone()))
}
