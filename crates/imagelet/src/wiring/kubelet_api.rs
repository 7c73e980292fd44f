//! Opens the kubelet's port of a node by the configuration. Holds no rule of its own. Called by `run`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use agent::node::{Node, machine};
use cluster::ClusterClient;
use cluster::kubelet_api::{KubeletApi, Parts, ServerNames, ServingCertificate, TlsFiles};
use cluster::reviews::Reviews;

use super::cluster::DIRECTORY;
use crate::app::App;
use crate::exit::{Code, Failure, Outcome};

/// Opens the port and listens; `None` if none is configured.
pub(crate) async fn open(
    app: &App,
    client: &ClusterClient,
    node: &Node,
    metrics: Arc<dyn Fn() -> String + Send + Sync>,
) -> Outcome<Option<KubeletApi>> {
    let config = &app.config;
    let port = config.cluster.port;
    if port == 0 {
        return Ok(None);
    }
    let name = config.pods.node_name();
    let ips = &config.pods.node_ips;
    let addresses = if ips.is_empty() { machine::addresses() } else { ips.clone() };
    let (board, health) = (node.board(), node.board());
    let parts = Parts {
        tls: TlsFiles {
            serving: ServingCertificate::Own {
                directory: config.root.join(DIRECTORY),
                names: ServerNames { node: name.clone(), addresses },
            },
            client_ca_file: config.cluster.client_ca_file.clone(),
        },
        node: name.clone(),
        authority: Arc::new(Reviews::new(client.clone(), name)),
        runtime: Arc::clone(&node.runtime),
        pods: Arc::new(move || board.list()),
        healthy: Arc::new(move || health.healthy()),
        configuration: app.configuration(),
        metrics,
    };
    // On all addresses, as the kubelet; without IPv6, on IPv4.
    let everywhere = [IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
    let everywhere = everywhere.map(|ip| SocketAddr::new(ip, port));
    let opened = KubeletApi::listen(&everywhere, parts).await;
    let api = opened
        .map_err(|error| Failure::caused(Code::Failed, format!("listen on port {port} for the API server"), &error))?;
    Ok(Some(api))
}
