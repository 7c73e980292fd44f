//! Checks of the container runtime: its socket, the engine that pulls for it, the sandbox image, the pod network and its disk.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cri_api::{ImageService, ImageSpec, RuntimeService, RuntimeStatus, VersionInfo};
use cri_grpc::Endpoint;
use cri_grpc::client::{connect_image_service, connect_runtime_service};
use image_service::PullEngine;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::finding::{Finding, bounded};
use super::{cni, disk};
use crate::app::App;
use crate::config::Config;
use crate::endpoint::{client_options, parse_endpoint, usual_socket};
use crate::exit::{Code, chain};
use crate::sandbox_image;

const RUNTIME: &str = "runtime";
const PULL_ENGINE: &str = "pull-engine";
const SANDBOX_IMAGE: &str = "sandbox-image";
const CNI: &str = "cni";
const RUNTIME_DISK: &str = "runtime-disk";

/// Time in which the runtime must answer a call.
const ANSWER: Duration = Duration::from_secs(5);

/// A runtime that answers.
struct Connected {
    endpoint: Endpoint,
    runtime: Arc<dyn RuntimeService>,
    status: RuntimeStatus,
}

/// Runs all checks of the runtime, and the check of the disk of the store.
pub(super) async fn checks(app: &App) -> Vec<Finding> {
    let (finding, connected) = connect(app).await;
    let Some(connected) = connected else {
        let why = "no container runtime answers";
        let skipped = [PULL_ENGINE, SANDBOX_IMAGE, CNI].map(|check| Finding::skipped(check, why));
        let store = disk::of_store(app, true).await;
        return std::iter::once(finding).chain(skipped).chain([store, Finding::skipped(RUNTIME_DISK, why)]).collect();
    };
    let images = images(app, &connected.endpoint).await;
    let (engine, sandbox, network, store, of_runtime) = tokio::join!(
        bounded(PULL_ENGINE, pull_engine(app, &connected.endpoint)),
        bounded(SANDBOX_IMAGE, sandbox_image(app, &connected, images.as_deref())),
        cni::check(CNI, connected.status.clone()),
        disk::of_store(app, false),
        bounded(RUNTIME_DISK, runtime_disk(app, images.as_deref())),
    );
    vec![finding, engine, sandbox, network, store, of_runtime]
}

/// Returns the endpoint of the runtime, and true if the configuration names it; `None` if none is configured and no usual socket exists.
fn endpoint(config: &Config) -> Option<(String, bool)> {
    let configured = config.container_runtime_endpoint.clone().or_else(|| config.image_service_endpoint.clone());
    match configured {
        Some(endpoint) => Some((endpoint, true)),
        None => usual_socket().map(|endpoint| (endpoint, false)),
    }
}

async fn connect(app: &App) -> (Finding, Option<Connected>) {
    let Some((text, is_configured)) = endpoint(&app.config) else {
        let message = "neither containerd nor CRI-O has a socket on this node, and containerRuntimeEndpoint is not set";
        let remedy =
            "to run pods, install a container runtime (apt-get install containerd); imagelet pulls without one";
        return (Finding::warning(RUNTIME, message, remedy), None);
    };
    let endpoint = match parse_endpoint(&text) {
        Ok(endpoint) => endpoint,
        Err(failure) => return (Finding::error(RUNTIME, failure.lines().join("; "), "correct the setting"), None),
    };
    let socket = endpoint.path().display();
    match timeout(ANSWER, UnixStream::connect(endpoint.path())).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) if error.kind() == ErrorKind::PermissionDenied => {
            return (
                Finding::skipped(RUNTIME, format!("connect to {socket}: {error}: run this command as root")),
                None,
            );
        }
        Ok(Err(error)) => {
            let start = "start the runtime: systemctl enable --now containerd (or crio)";
            let remedy =
                if is_configured { format!("{start}, or correct containerRuntimeEndpoint") } else { start.into() };
            return (Finding::error(RUNTIME, format!("connect to {socket}: {error}"), remedy), None);
        }
        Err(_) => return (silent(&endpoint), None),
    }
    match timeout(ANSWER, ask(app, &endpoint)).await {
        Ok(Ok((runtime, version, status))) => {
            let VersionInfo { runtime_name, runtime_version, .. } = version;
            let finding = match status.conditions.iter().find(|condition| condition.kind == "RuntimeReady") {
                Some(ready) if !ready.status => {
                    let message =
                        format!("{runtime_name} {runtime_version} is not ready: {} {}", ready.reason, ready.message);
                    Finding::error(RUNTIME, message, "read its log: journalctl -u containerd (or crio)")
                }
                _ => Finding::ok(RUNTIME, format!("{runtime_name} {runtime_version} answers on {endpoint}")),
            };
            (finding, Some(Connected { endpoint, runtime, status }))
        }
        Ok(Err(error)) => {
            let remedy = "its CRI plugin must not be in disabled_plugins of /etc/containerd/config.toml; after a change: systemctl \
                          restart containerd";
            (Finding::error(RUNTIME, error, remedy), None)
        }
        Err(_) => (silent(&endpoint), None),
    }
}

fn silent(endpoint: &Endpoint) -> Finding {
    let message = format!("{endpoint} gave no answer within {}s", ANSWER.as_secs());
    Finding::error(RUNTIME, message, "restart the runtime: systemctl restart containerd (or crio)")
}

async fn ask(app: &App, endpoint: &Endpoint) -> Result<(Arc<dyn RuntimeService>, VersionInfo, RuntimeStatus), String> {
    let runtime = connect_runtime_service(endpoint, client_options(&app.config)).await;
    let runtime: Arc<dyn RuntimeService> = Arc::new(runtime.map_err(|error| chain(&error))?);
    let call = |what: &str, error: &cri_api::Error| format!("{endpoint}: {what}: {}", error.message());
    let version = runtime.version().await.map_err(|error| call("ask for the version", &error))?;
    let status = runtime.status(true).await.map_err(|error| call("ask for the status", &error))?;
    Ok((runtime, version, status))
}

/// Returns the image service that has the images of the runtime.
async fn images(app: &App, runtime: &Endpoint) -> Result<Arc<dyn ImageService>, String> {
    let endpoint = match &app.config.image_service_endpoint {
        Some(text) => parse_endpoint(text).map_err(|failure| failure.lines().join("; "))?,
        None => runtime.clone(),
    };
    match timeout(ANSWER, connect_image_service(&endpoint, client_options(&app.config))).await {
        Ok(Ok(images)) => Ok(Arc::new(images)),
        Ok(Err(error)) => Err(chain(&error)),
        Err(_) => Err(format!("{endpoint} gave no answer within {}s", ANSWER.as_secs())),
    }
}

/// Checks which engine pulls images for the runtime.
async fn pull_engine(app: &App, endpoint: &Endpoint) -> Finding {
    if app.config.pull_engine == PullEngine::Runtime {
        return Finding::ok(PULL_ENGINE, "the runtime pulls, as pullEngine says");
    }
    match app.pull_engine_of(endpoint).await {
        Ok(Some(choice)) if choice.is_embedded => Finding::ok(PULL_ENGINE, choice.to_string()),
        Ok(Some(choice)) => {
            let remedy = "imagelet pulls by itself into containerd's snapshotters overlayfs and erofs, and for CRI-O with `imagelet \
                          serve`: docs/behind-your-kubelet.md";
            Finding::warning(PULL_ENGINE, choice.to_string(), remedy)
        }
        Ok(None) => Finding::skipped(PULL_ENGINE, format!("{endpoint} is not the endpoint of a runtime")),
        // The embedded engine is demanded, and the runtime's store is unsuited.
        Err(failure) if failure.code() == Code::Config => {
            Finding::error(PULL_ENGINE, failure.lines().join("; "), "pullEngine: auto")
        }
        Err(failure) => Finding::skipped(PULL_ENGINE, failure.lines().join("; ")),
    }
}

/// Checks that the image of pod sandboxes is on the node.
async fn sandbox_image(app: &App, connected: &Connected, images: Result<&dyn ImageService, &String>) -> Finding {
    let configured = Some(app.config.gc.sandbox_image.clone()).filter(|image| !image.is_empty());
    let found = match configured {
        Some(image) => Ok(Some(image)),
        None => sandbox_image::of_runtime(&*connected.runtime, &connected.endpoint).await,
    };
    let image = match found {
        Ok(Some(image)) => image,
        Ok(None) => {
            let why = "neither the runtime nor its configuration file names it, so the runtime pulls its default; the setting \
                       imageGC.sandboxImage has imagelet pull and keep it";
            return Finding::skipped(SANDBOX_IMAGE, why);
        }
        Err(error) => return Finding::skipped(SANDBOX_IMAGE, error),
    };
    let images = match images {
        Ok(images) => images,
        Err(error) => return Finding::skipped(SANDBOX_IMAGE, error.as_str()),
    };
    match images.image_status(&ImageSpec::new(&image), false).await {
        Ok(status) if status.image.is_some() => Finding::ok(SANDBOX_IMAGE, format!("{image} is present")),
        Ok(_) => {
            let remedy = format!(
                "`imagelet run` pulls it before the first pod; for a kubelet: imagelet -i {} pull {image}",
                connected.endpoint
            );
            Finding::warning(SANDBOX_IMAGE, format!("{image} is not present"), remedy)
        }
        Err(error) => Finding::skipped(SANDBOX_IMAGE, format!("ask for {image}: {}", error.message())),
    }
}

/// Checks the file system of the runtime's images.
async fn runtime_disk(app: &App, images: Result<&dyn ImageService, &String>) -> Finding {
    let images = match images {
        Ok(images) => images,
        Err(error) => return Finding::skipped(RUNTIME_DISK, error.as_str()),
    };
    let info = match images.image_fs_info().await {
        Ok(info) => info,
        Err(error) => {
            return Finding::skipped(RUNTIME_DISK, format!("ask for the image file system: {}", error.message()));
        }
    };
    match info.image_filesystems.into_iter().next() {
        Some(fs) => disk::of_path(RUNTIME_DISK, app, PathBuf::from(fs.mountpoint), true).await,
        None => Finding::skipped(RUNTIME_DISK, "the runtime names no directory of its images"),
    }
}
