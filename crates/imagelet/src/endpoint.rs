//! Endpoints as the configuration and paths name them, and how a client identifies itself to one; connects to container runtimes. Called by
//! `app`, `images` and `admin`, and by the commands that name an endpoint of their own.

use std::path::PathBuf;
use std::sync::Arc;

use agent::admin::AdminAddress;
use cri_api::{RuntimeService, VersionInfo};
use cri_grpc::Endpoint;
use cri_grpc::client::{ClientOptions, RuntimePassthrough, connect_runtime_service};

use crate::config::Config;
use crate::exit::{Code, Failure, Outcome, chain, code_of};

/// The name under which this program identifies itself to registries and runtimes.
pub(crate) const USER_AGENT: &str = concat!("imagelet/", env!("CARGO_PKG_VERSION"));

/// Default sockets of runtimes, used where no endpoint is configured.
const USUAL_SOCKETS: [&str; 2] = ["/run/containerd/containerd.sock", "/run/crio/crio.sock"];

/// Parses an endpoint of the configuration. The configuration was validated before; an endpoint that does not parse is still an error.
pub(crate) fn parse_endpoint(text: &str) -> Outcome<Endpoint> {
    Endpoint::parse(text).map_err(|error| Failure::caused(Code::Config, format!("endpoint {text:?}"), &error))
}

/// Returns the admin endpoint: as configured, or on a socket in the root.
pub(crate) fn admin_address(config: &Config) -> AdminAddress {
    AdminAddress {
        socket: admin_socket(config),
        required: config.admin_socket.is_some(),
        group: config.admin_group.clone(),
        others_read: config.admin_others_read,
        metrics: config.metrics_address,
    }
}

/// Returns the socket of the admin endpoint.
pub(crate) fn admin_socket(config: &Config) -> PathBuf {
    config.admin_socket.clone().unwrap_or_else(|| config.root.join("admin.sock"))
}

/// Returns the settings of the client of a remote endpoint.
pub(crate) fn client_options(config: &Config) -> ClientOptions {
    ClientOptions {
        request_timeout: config.runtime_request_timeout,
        user_agent: USER_AGENT.to_owned(),
        ..ClientOptions::default()
    }
}

/// Connects to the container runtime behind an endpoint.
pub(crate) async fn connect_runtime(config: &Config, endpoint: &Endpoint) -> Outcome<Arc<dyn RuntimeService>> {
    match connect_runtime_service(endpoint, client_options(config)).await {
        Ok(runtime) => Ok(Arc::new(runtime)),
        Err(error) => Err(Failure::new(code_of(error.kind()), chain(&error))),
    }
}

/// Connects to the container runtime behind an endpoint, for calls of clients that are forwarded unread.
pub(crate) async fn connect_passthrough(config: &Config, endpoint: &Endpoint) -> Outcome<RuntimePassthrough> {
    match connect_runtime_service(endpoint, client_options(config)).await {
        Ok(runtime) => Ok(runtime.passthrough()),
        Err(error) => Err(Failure::new(code_of(error.kind()), chain(&error))),
    }
}

/// Connects to the container runtime behind an endpoint, and returns its name and version. Refuses `imagelet serve` without a runtime
/// behind it.
pub(crate) async fn connect_pod_runtime(
    config: &Config,
    endpoint: &Endpoint,
) -> Outcome<(Arc<dyn RuntimeService>, VersionInfo)> {
    let runtime = connect_runtime(config, endpoint).await?;
    let version = runtime.version().await.map_err(|error| Failure::call(endpoint, &error))?;
    if version.runtime_name == "imagelet" {
        return Err(Failure::new(Code::Config, format!("{endpoint} serves images and runs no pods")));
    }
    Ok((runtime, version))
}

/// Returns the default endpoint of this machine: containerd or CRI-O, whichever socket exists.
pub(crate) fn usual_endpoint() -> String {
    usual_socket().unwrap_or_else(|| format!("unix://{}", USUAL_SOCKETS[0]))
}

/// Returns the default endpoint of this machine if its socket exists.
pub(crate) fn usual_socket() -> Option<String> {
    let existing = USUAL_SOCKETS.iter().find(|path| std::path::Path::new(path).exists());
    existing.map(|path| format!("unix://{path}"))
}

/// Sets the endpoints of `run` that the configuration leaves out: the runtime of this machine, and its images.
pub(crate) fn choose_endpoints(config: &mut Config) {
    if config.container_runtime_endpoint.is_none() {
        let endpoint = usual_endpoint();
        config.notes.push(format!("containerRuntimeEndpoint is not set: pods run on {endpoint}"));
        config.container_runtime_endpoint = Some(endpoint);
    }
    // As for the kubelet, images are behind the endpoint of the containers.
    if config.image_service_endpoint.is_none() {
        config.image_service_endpoint.clone_from(&config.container_runtime_endpoint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;

    #[test]
    fn images_are_where_containers_are_unless_it_is_said_otherwise() {
        let mut config = Config::defaults(&Environment::default());
        config.container_runtime_endpoint = Some("unix:///run/y.sock".to_owned());
        choose_endpoints(&mut config);
        assert_eq!(config.image_service_endpoint.as_deref(), Some("unix:///run/y.sock"));
        assert!(config.notes.is_empty());
        config.image_service_endpoint = Some("unix:///run/x.sock".to_owned());
        choose_endpoints(&mut config);
        assert_eq!(config.image_service_endpoint.as_deref(), Some("unix:///run/x.sock"));
        let mut silent = Config::defaults(&Environment::default());
        choose_endpoints(&mut silent);
        assert_eq!(silent.container_runtime_endpoint, silent.image_service_endpoint);
        assert!(silent.notes[0].starts_with("containerRuntimeEndpoint is not set: pods run on unix:///run/"));
    }
}
