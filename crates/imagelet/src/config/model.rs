//! The configuration as plain values. Validates nothing. Read by the code that opens stores, connects, pulls or logs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use image_service::{EngineOptions, PullEngine};
use registry::AllowedTarget;
use serde_json::json;
use tracing_subscriber::filter::LevelFilter;

use super::declare::{Setting, settings};
use super::error::{ConfigError, Origin};
use super::eviction::Eviction;
use super::kind::MOST;
use super::kind::{Kind, boolean, choice, directories, duration, integer, list, named, parsed, path, text, unset};
use super::settings::access::{Credentials, Verification};
use super::settings::cluster::Cluster;
use super::settings::collection::{ContainerGc, Gc};
use super::settings::pods::Pods;
use super::settings::pulls::{BackOff, Pulls};
use super::settings::status_page::StatusPage;
use super::settings::traces::TraceSettings;
use super::value::{Raw, Wrong};
use crate::environment::Environment;

/// The kubelet's `maxPods`.
pub(crate) const DEFAULT_MAX_PODS: i64 = 110;

/// Longest time that a call may take.
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

const LOG_FORMATS: &[(&str, LogFormat)] = &[("text", LogFormat::Text), ("json", LogFormat::Json)];
const LOG_LEVELS: &[(&str, LevelFilter)] = &[
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

const PULL_ENGINES: &[(&str, PullEngine)] =
    &[("auto", PullEngine::Auto), ("embedded", PullEngine::Embedded), ("runtime", PullEngine::Runtime)];

settings! {
    /// Everything that can be configured.
    #[derive(Clone, Debug)]
    struct Config(environment: &Environment) {
        Node {
            root: PathBuf = environment.default_root() =>
                "root", "root", path("DIR"),
                "Directory of the embedded store [default: /var/lib/imagelet for root, otherwise \
                 $XDG_DATA_HOME/imagelet or ~/.local/share/imagelet]";
            image_service_endpoint: Option<String> = None =>
                "imageServiceEndpoint", "image-endpoint", endpoint(),
                "CRI endpoint of the images, for example unix:///run/containerd/containerd.sock; without it \
                 the embedded store. crictl's variables IMAGE_SERVICE_ENDPOINT and CONTAINER_RUNTIME_ENDPOINT \
                 are not read: they would move images to another runtime unasked", short('i'), kubelet();
            pull_engine: PullEngine = PullEngine::Auto =>
                "pullEngine", "pull-engine", choice(PULL_ENGINES),
                "Who pulls images for the runtime behind imageServiceEndpoint: embedded (our engine, into the runtime's own \
                 store), runtime, or auto (our engine where it is sure that the runtime finds what it brings)";
            container_runtime_endpoint: Option<String> = None =>
                "containerRuntimeEndpoint", "runtime-endpoint", endpoint(),
                "CRI endpoint of the container runtime that `serve` passes through, and on which `run` runs \
                 pods. It is not an image endpoint, except for `run`, whose images are behind it unless \
                 imageServiceEndpoint names another [default: none; for run the first of \
                 /run/containerd/containerd.sock and /run/crio/crio.sock that is there]", short('r'), kubelet();
            runtime_request_timeout: Duration = Duration::from_secs(120) =>
                "runtimeRequestTimeout", "runtime-request-timeout", duration(Duration::from_millis(1)..=MAX_TIMEOUT),
                "Longest time of a call to a remote endpoint; pulls have no limit", kubelet();
            registry_config_paths: Vec<PathBuf> = vec!["/etc/imagelet/certs.d".into(), "/etc/containerd/certs.d".into()] =>
                "registryConfigPaths", "registry-config-path", directories(),
                "Directory with <host>/hosts.toml, as in containerd; may be given again, the first one that \
                 has the host decides [default: /etc/imagelet/certs.d, then /etc/containerd/certs.d]";
            allowed_registry_targets: Vec<AllowedTarget> = Vec::new() =>
                "allowedRegistryTargets", "allowed-registry-target", list("TARGET", "a list of origins such as http://storage.example:9000 and networks such as 10.0.0.0/8"),
                "Targets to which a registry may redirect, or where its token service may be, although they \
                 are in plain HTTP, on this machine or at a private or link-local address and the registry is \
                 not: origins (http://storage.example:9000) and networks (10.0.0.0/8); may be given again \
                 [default: nowhere]";
            kubelet_config: Option<PathBuf> = None =>
                "kubeletConfig", "kubelet-config", unset(path("FILE")),
                "A kubelet's configuration file (KubeletConfiguration, YAML or JSON): the fields that concern \
                 images and pods are taken from it; imagelet's own file, variables and flags override it", reloads();
            /// The caches of pull records are sized by it.
            max_pods: i64 = DEFAULT_MAX_PODS =>
                "maxPods", "max-pods", integer(0..=MOST),
                "Largest number of pods on the node; the caches of pull records are sized by it", kubelet();
            /// `None`: nobody, unless systemd passes a socket.
            listen: Option<String> = None =>
                "listen", "listen", endpoint(),
                "CRI endpoint on which `serve`, and `run` beside its pods, serve images, for example \
                 unix:///run/imagelet/imagelet.sock [default: the socket that systemd passes]";
            admin_socket: Option<PathBuf> = None =>
                "adminSocket", "admin-socket", unset(path("PATH")),
                "Unix socket of an agent's API, with health and metrics [default: admin.sock in the root]";
            admin_group: Option<String> = None =>
                "adminGroup", "admin-group", unset(text("GROUP", "the name or the number of a group")),
                "Group, by name or number, whose members may change things over the admin socket, which becomes \
                 theirs; needs adminSocket, because nobody else may enter the root [default: none]";
            admin_others_read: bool = false =>
                "adminOthersRead", "admin-others-read", boolean(),
                "Everyone who reaches the admin socket may read what holds no secret: images, pulls, the disk, \
                 which pods there are; needs adminSocket";
            metrics_address: Option<SocketAddr> = None =>
                "metricsAddress", "metrics-address", unset(parsed(
                    "ADDR:PORT",
                    "an address and port such as 127.0.0.1:9095",
                    |text| text.parse::<SocketAddr>().map_err(|error| error.to_string()),
                    |address| json!(address),
                )),
                "Address on which an agent serves its metrics over HTTP [default: none]";
        }
        Collection {
            pod_logs: PathBuf = "/var/log/pods".into() =>
                "podLogsDir", "pod-logs-dir", path("DIR"),
                "Directory of the logs of pods; a container's log is removed with the container", kubelet();
        }
        Logging {
            log_format: LogFormat = LogFormat::Text =>
                "logging.format", "log-format", choice(LOG_FORMATS),
                "Format of the log on stderr";
            log_level: LevelFilter = LevelFilter::INFO =>
                "logging.level", "log-level", named("LEVEL", choice(LOG_LEVELS)),
                "Log level: error, warn, info, debug or trace";
        }
        + other {
            status_page: StatusPage = StatusPage::initial();
            pods: Pods = Pods::initial();
            cluster: Cluster = Cluster::initial();
            pulls: Pulls = Pulls::initial();
            back_off: BackOff = BackOff::initial();
            verification: Verification = Verification::initial();
            credentials: Credentials = Credentials::initial();
            gc: Gc = Gc::initial();
            eviction: Eviction = Eviction::initial();
            container_gc: ContainerGc = ContainerGc::initial();
            /// Options that are settings; the rest has the engine's defaults.
            engine: EngineOptions = EngineOptions::default();
            traces: TraceSettings = TraceSettings::initial();
            /// Where values came from, by field; an absent one is a default.
            origins: BTreeMap<&'static str, Origin> = BTreeMap::new();
            /// Notes for the log, once it is open.
            notes: Vec<String> = Vec::new();
        }
    }
}

/// The endpoint of a container runtime or an image service; an empty text for none.
fn endpoint() -> Kind<Option<String>> {
    let parse = |text: &str| match text {
        "" => Ok(None),
        text => cri_grpc::Endpoint::parse(text).map(|_| Some(text.to_owned())).map_err(|e| crate::exit::chain(&e)),
    };
    let show = |endpoint: &Option<String>| json!(endpoint.as_deref().unwrap_or_default());
    parsed("ENDPOINT", "an endpoint such as unix:///run/containerd/containerd.sock", parse, show)
}

impl Config {
    /// Returns the defaults.
    pub(crate) fn defaults(environment: &Environment) -> Self {
        Self::initial(environment)
    }

    /// Sets a value and records its source.
    pub(super) fn apply(
        &mut self,
        setting: &'static Setting<Self>,
        origin: Origin,
        raw: Raw<'_>,
    ) -> Result<(), ConfigError> {
        match setting.apply(self, raw) {
            Ok(()) => {
                self.origins.insert(setting.field, origin);
                Ok(())
            }
            Err(Wrong(allowed)) => {
                let value = if setting.is_secret() { "what was given".to_owned() } else { raw.to_string() };
                Err(ConfigError::Value { origin, field: setting.field, value, allowed })
            }
        }
    }
}
