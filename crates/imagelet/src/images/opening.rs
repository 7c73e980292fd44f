//! How images are opened: [`Opening`], and the options of an engine by the configuration. Called by [`Images`](super::Images).

use std::path::PathBuf;
use std::time::Duration;

use cri_grpc::Endpoint;
use image_service::{EngineOptions, OpenError, Reach};
use oci::Platform;
use store::OpenError as StoreOpenError;
use tokio_util::sync::CancellationToken;

use super::layer_form::view_layers;
use super::network::PullNetwork;
use crate::access::Access;
use crate::config::Config;
use crate::endpoint::USER_AGENT;
use crate::environment::Proxies;
use crate::exit::{Code, Failure, Outcome, chain};

/// Longest `Retry-After` that a pull waits out if its caller retries failed pulls.
const BRIEF: Duration = Duration::from_secs(2);

/// Parameters for opening images.
pub(crate) struct Opening<'a> {
    pub(crate) proxies: &'a Proxies,
    pub(crate) access: &'a Access,
    /// True if the caller retries failed pulls later.
    pub(crate) backs_off: bool,
    /// The limit and the count of bytes that all pulls of the process share.
    pub(crate) network: &'a PullNetwork,
    /// Socket on which this process will serve images; the embedded store is then for this process alone.
    pub(crate) socket: Option<PathBuf>,
    /// Cancelled when the process is asked to end.
    pub(crate) stop: &'a CancellationToken,
}

/// Refuses flags that say how registries are reached if another process reaches them.
pub(super) fn own_reach(config: &Config, puller: &dyn std::fmt::Display) -> Outcome {
    if config.reach == Reach::AsConfigured {
        return Ok(());
    }
    let flags = "--tls-verify and --plain-http are for pulls of this process";
    Err(Failure::usage(format!("{flags}, and {puller} pulls: configure the registry's hosts.toml there")))
}

/// Refuses a platform of another machine: the runtime pulls only for its own.
pub(super) fn own_platform(wanted: &Platform, endpoint: &Endpoint) -> Outcome {
    let own = Platform::host();
    if own.runnable().iter().any(|own| own.os == wanted.os && own.architecture == wanted.architecture) {
        return Ok(());
    }
    Err(Failure::usage(format!("platform {wanted} is for pulls of this process, and {endpoint} pulls, for {own}")))
}

/// Returns the options of the embedded engine, by the configuration.
pub(super) fn engine_options(
    config: &Config,
    proxies: &Proxies,
    backs_off: bool,
    network: &PullNetwork,
    agent_socket: Option<PathBuf>,
) -> EngineOptions {
    let mut options = EngineOptions {
        root: config.root.clone(),
        hosts_roots: config.registry_config_paths.clone(),
        allowed_targets: config.allowed_registry_targets.clone(),
        bandwidth: network.bandwidth.clone(),
        traffic: network.traffic.clone(),
        user_agent: USER_AGENT.to_owned(),
        reach: config.reach,
        ..config.engine.options()
    };
    if backs_off {
        options.retry.max_retry_after = BRIEF;
    }
    options.store.agent_socket = agent_socket;
    options.store.mounted_view = view_layers(config);
    let limits = &mut options.store.limits;
    limits.pax_record_bytes = limits.pax_record_bytes.min(limits.pax_header_bytes);
    limits.long_name_bytes = limits.long_name_bytes.min(limits.pax_header_bytes);
    options.proxy.http.clone_from(&proxies.http);
    options.proxy.https.clone_from(&proxies.https);
    options.proxy.no_proxy.clone_from(&proxies.no_proxy);
    options
}

/// Converts the error of a root or a signature policy that cannot be opened. A missing permission has an exit code of its own.
pub(super) fn open_failure(error: &OpenError) -> Failure {
    let code = match error {
        OpenError::Store(StoreOpenError::NotOwned { .. }) => Code::NotPermitted,
        OpenError::Store(StoreOpenError::Io { source, .. })
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            Code::NotPermitted
        }
        OpenError::Option { .. } | OpenError::SignaturePolicy(_) => Code::Config,
        _ => Code::Failed,
    };
    Failure::new(code, chain(error))
}
