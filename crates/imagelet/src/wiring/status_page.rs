//! Opens the status page of an agent by the configuration. Holds no rule of its own. Called by `run` and `serve`.

use std::sync::Arc;

use agent::collection::Collection;
use agent::node::{Node, machine};
use agent::page::{PageAddress, PageParts, StatusPage, read_token};
use cluster::kubelet_api::{ServerNames, ServingCertificate, TlsFiles};
use image_manager::ImageManager;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::config::Config;
use crate::exit::{Code, Failure, Outcome};

/// Directory of the page's own certificate below the root.
const DIRECTORY: &str = "status-page";

/// Opens the page of an agent that collects these images, and listens; `None` if none is configured.
pub(crate) async fn open(
    app: &App,
    collection: &Arc<Collection>,
    manager: Option<Arc<ImageManager>>,
    node: Option<&Node>,
) -> Outcome<Option<StatusPage>> {
    let Some(at) = address(&app.config).await? else { return Ok(None) };
    let shown = at.address;
    let parts = PageParts {
        node_name: app.config.pods.node_name(),
        collection: Arc::clone(collection),
        pulls: app.board.clone(),
        manager,
        pods: node.map(Node::board),
    };
    let failed =
        |error: std::io::Error| Failure::caused(Code::Failed, format!("listen on {shown} for the status page"), &error);
    let page = StatusPage::listen(at, parts).await.map_err(failed)?;
    tracing::info!(url = page.url(), "status page");
    Ok(Some(page))
}

/// Answers until `stop`, if there is a page.
pub(crate) async fn run(page: Option<StatusPage>, stop: &CancellationToken) {
    if let Some(page) = page {
        page.run(stop).await;
    }
}

/// Returns the address of the page, and its permitted readers.
async fn address(config: &Config) -> Outcome<Option<PageAddress>> {
    let page = &config.status_page;
    let Some(address) = page.address else { return Ok(None) };
    let token = match page.token_file.clone() {
        None => None,
        Some(path) => {
            let read = tokio::task::spawn_blocking(move || read_token(&path)).await;
            let read = read.map_err(|_| Failure::failed("read the token of the status page: the reader panicked"))?;
            Some(read.map_err(|error| Failure::caused(Code::Config, "statusTokenFile", &error))?)
        }
    };
    let serving = match (page.cert_file.clone(), page.key_file.clone()) {
        (Some(certificate), Some(key)) => ServingCertificate::Files { certificate, key },
        _ => ServingCertificate::Own {
            directory: config.root.join(DIRECTORY),
            names: ServerNames {
                node: config.pods.node_name(),
                addresses: match address.ip() {
                    ip if ip.is_unspecified() => machine::addresses(),
                    ip => vec![ip],
                },
            },
        },
    };
    let tls = page.has_tls().then(|| TlsFiles { serving, client_ca_file: page.client_ca_file.clone() });
    Ok(Some(PageAddress { address, tls, token }))
}
