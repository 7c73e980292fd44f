//! Opens the status page of an agent by the configuration. Holds no rule of its own. Called by `run` and `serve`.

use std::path::PathBuf;
use std::sync::Arc;

use agent::admin::image_sets::ImageSets;
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
/// Files of another certificate in that directory, with its chain, and of its key.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// Opens the page of an agent that collects these images, and listens; `None` if none is configured.
pub(crate) async fn open(
    app: &App,
    collection: &Arc<Collection>,
    manager: Option<Arc<ImageManager>>,
    node: Option<&Node>,
    image_sets: Option<ImageSets>,
) -> Outcome<Option<StatusPage>> {
    let Some(at) = address(&app.config).await? else { return Ok(None) };
    let shown = at.address;
    let parts = PageParts {
        node_name: app.config.pods.node_name(),
        collection: Arc::clone(collection),
        pulls: app.board.clone(),
        manager,
        pods: node.map(Node::board),
        image_sets,
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
    let directory = config.root.join(DIRECTORY);
    let (certificate, key) = (directory.join(CERTIFICATE), directory.join(KEY));
    let [has_certificate, has_key] = exist([certificate.clone(), key.clone()]).await?;
    if has_certificate != has_key {
        let (one, other) = if has_certificate { (&certificate, &key) } else { (&key, &certificate) };
        let (one, other) = (one.display(), other.display());
        return Err(Failure::new(
            Code::Config,
            format!("certificate of the status page: there is {one} and no {other}"),
        ));
    }
    let serving = match has_certificate {
        true => ServingCertificate::Files { certificate, key },
        false => ServingCertificate::Own {
            directory,
            names: ServerNames {
                node: config.pods.node_name(),
                addresses: match address.ip() {
                    ip if ip.is_unspecified() => machine::addresses(),
                    ip => vec![ip],
                },
            },
        },
    };
    let has_tls = has_certificate || !address.ip().is_loopback();
    let tls = has_tls.then_some(TlsFiles { serving, client_ca_file: None });
    Ok(Some(PageAddress { address, tls, token }))
}

/// Returns which of these files exist.
async fn exist(files: [PathBuf; 2]) -> Outcome<[bool; 2]> {
    let examine = move || -> std::io::Result<[bool; 2]> { Ok([files[0].try_exists()?, files[1].try_exists()?]) };
    let found = tokio::task::spawn_blocking(examine).await;
    let found = found.map_err(|_| Failure::failed("examine the certificate of the status page: the task panicked"))?;
    found.map_err(|error| Failure::caused(Code::Config, "examine the certificate of the status page", &error))
}
