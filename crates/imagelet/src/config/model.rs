//! The configuration as plain values: a setting is a field of [`Config`] or of one of its parts. Validates nothing beyond the form of
//! each value. Read by the code that opens stores, connects, pulls or logs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use image_service::{PullEngine, Reach};
use registry::AllowedTarget;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use store::LayerFormat;
use tracing_subscriber::filter::LevelFilter;

use super::error::Origin;
use super::eviction::Eviction;
use super::flag::Empty::{Hidden, Shown};
use super::flag::Group::{Advanced, Collection, Logging, Node};
use super::flag::flag;
use super::form::{As, Check, Checked, Choice, DAY, List, MOST, Maybe, Span, Text, Words};
use super::settings::access::{Credentials, Verification};
use super::settings::cluster::Cluster;
use super::settings::collection::Gc;
use super::settings::engine::Engine;
use super::settings::fleet::FleetSettings;
use super::settings::pods::Pods;
use super::settings::pulls::{BackOff, Pulls};
use super::settings::status_page::StatusPage;
use super::settings::traces::TraceSettings;
use crate::environment::Environment;

/// The kubelet's `maxPods`.
pub(crate) const DEFAULT_MAX_PODS: i64 = 110;

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

impl Words for LogFormat {
    const WORDS: &'static [(&'static str, Self)] = &[("text", Self::Text), ("json", Self::Json)];
}

/// Prefix of the metrics that a kubelet also exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricsPrefix {
    /// That of imagelet where a kubelet runs on this node.
    Auto,
    /// `kubelet_`.
    Kubelet,
    /// `imagelet_`.
    Imagelet,
}

impl MetricsPrefix {
    /// Returns true if the names begin with `imagelet_`. `next_to_kubelet`: the process serves a kubelet of this node.
    pub(crate) fn is_own(self, next_to_kubelet: bool) -> bool {
        match self {
            Self::Auto => next_to_kubelet,
            Self::Kubelet => false,
            Self::Imagelet => true,
        }
    }
}

impl Words for MetricsPrefix {
    const WORDS: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("kubelet", Self::Kubelet), ("imagelet", Self::Imagelet)];
}

impl Words for LevelFilter {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("error", Self::ERROR),
        ("warn", Self::WARN),
        ("info", Self::INFO),
        ("debug", Self::DEBUG),
        ("trace", Self::TRACE),
    ];
}

impl Words for PullEngine {
    const WORDS: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("embedded", Self::Embedded), ("runtime", Self::Runtime)];
}

/// The endpoint of a container runtime or an image service.
pub(super) struct Endpoint;

impl Check for Endpoint {
    fn check(text: &str) -> Result<(), String> {
        cri_grpc::Endpoint::parse(text).map(drop).map_err(|error| crate::exit::chain(&error))
    }
}

const ENDPOINT: &str = "an endpoint such as unix:///run/containerd/containerd.sock";

/// Everything that can be configured.
///
/// The serialised form is the internal one, with the fields of the file as keys: it contains what is not shown. Use
/// [`Setting::value_in`](super::setting::Setting::value_in) for what is shown.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Config {
    #[schemars(
        description = "Directory of the embedded store [default: /var/lib/imagelet for root, otherwise \
                       $XDG_DATA_HOME/imagelet or ~/.local/share/imagelet]",
        extend("imagelet" = flag(Node, "root").value("DIR"))
    )]
    pub(crate) root: PathBuf,
    #[serde(rename = "imageServiceEndpoint", with = "As::<Maybe<Checked<Endpoint>>>")]
    #[schemars(
        description = "CRI endpoint of the images, for example unix:///run/containerd/containerd.sock; without it the embedded store. \
                       crictl's variables IMAGE_SERVICE_ENDPOINT and CONTAINER_RUNTIME_ENDPOINT are not read: they would move images \
                       to another runtime unasked",
        extend("imagelet" = flag(Node, "image-endpoint").short('i').value("ENDPOINT").allowed(ENDPOINT).empty(Shown).kubelet())
    )]
    pub(crate) image_service_endpoint: Option<String>,
    #[serde(rename = "pullEngine", with = "As::<Choice<PullEngine>>")]
    #[schemars(
        description = "Who pulls images for the runtime behind imageServiceEndpoint: embedded (our engine, into the runtime's own \
                       store), runtime, or auto (our engine where it is sure that the runtime finds what it brings)",
        extend("imagelet" = flag(Node, "pull-engine"))
    )]
    pub(crate) pull_engine: PullEngine,
    #[serde(rename = "runtimeLayers", with = "As::<Choice<LayerFormat>>")]
    #[schemars(
        description = "Form of the layers that the embedded engine puts into containerd's default snapshotter, overlayfs, and shows to \
                       podman and CRI-O: one EROFS file each, mounted once for all containers, or a directory tree. auto: EROFS files if \
                       the kernel mounts them, other processes see the mounts, and the unit imagelet-mounts.service is enabled, and \
                       directories otherwise",
        extend("imagelet" = flag(Node, "runtime-layers"))
    )]
    pub(crate) runtime_layers: LayerFormat,
    #[serde(rename = "containerRuntimeEndpoint", with = "As::<Maybe<Checked<Endpoint>>>")]
    #[schemars(
        description = "CRI endpoint of the container runtime that `serve` passes through, and on which `run` runs pods. It is not an \
                       image endpoint, except for `run`, whose images are behind it unless imageServiceEndpoint names another \
                       [default: none; for run the first of /run/containerd/containerd.sock and /run/crio/crio.sock that is there]",
        extend("imagelet" = flag(Node, "runtime-endpoint").short('r').value("ENDPOINT").allowed(ENDPOINT).empty(Shown).kubelet())
    )]
    pub(crate) container_runtime_endpoint: Option<String>,
    #[serde(rename = "runtimeRequestTimeout", with = "As::<Span<1, DAY>>")]
    #[schemars(
        description = "Longest time of a call to a remote endpoint; pulls have no limit",
        extend("imagelet" = flag(Node, "runtime-request-timeout").kubelet())
    )]
    pub(crate) runtime_request_timeout: Duration,
    #[serde(rename = "registryConfigPaths")]
    #[schemars(
        description = "Directory with <host>/hosts.toml, as in containerd; may be given again, the first one that has the host \
                       decides [default: /etc/imagelet/certs.d, then /etc/containerd/certs.d]",
        extend("imagelet" = flag(Node, "registry-config-path").value("DIR"), "minItems" = 1)
    )]
    pub(crate) registry_config_paths: Vec<PathBuf>,
    #[serde(rename = "allowedRegistryTargets", with = "As::<List<AllowedTarget>>")]
    #[schemars(
        description = "Targets to which a registry may redirect, or where its token service may be, although they are in plain HTTP, \
                       on this machine or at a private or link-local address and the registry is not: origins \
                       (http://storage.example:9000) and networks (10.0.0.0/8); may be given again [default: nowhere]",
        extend("imagelet" = flag(Advanced, "allowed-registry-target").value("TARGET")
            .allowed("a list of origins such as http://storage.example:9000 and networks such as 10.0.0.0/8"))
    )]
    pub(crate) allowed_registry_targets: Vec<AllowedTarget>,
    #[serde(rename = "kubeletConfig")]
    #[schemars(
        description = "A kubelet's configuration file (KubeletConfiguration, YAML or JSON): the fields that concern images and pods \
                       are taken from it; imagelet's own file, variables and flags override it",
        extend("imagelet" = flag(Node, "kubelet-config").value("FILE").reloads())
    )]
    pub(crate) kubelet_config: Option<PathBuf>,
    /// The caches of pull records are sized by it.
    #[serde(rename = "maxPods")]
    #[schemars(
        description = "Largest number of pods on the node; the caches of pull records are sized by it",
        range(min = 0, max = MOST),
        extend("imagelet" = flag(Node, "max-pods").allowed("a whole number").kubelet())
    )]
    pub(crate) max_pods: i64,
    /// `None`: nowhere, unless systemd passes a socket.
    #[serde(with = "As::<Maybe<Checked<Endpoint>>>")]
    #[schemars(
        description = "CRI endpoint on which `serve`, and `run` next to its pods, serve images, for example \
                       unix:///run/imagelet/imagelet.sock [default: the socket that systemd passes]",
        extend("imagelet" = flag(Node, "listen").value("ENDPOINT").allowed(ENDPOINT).empty(Shown))
    )]
    pub(crate) listen: Option<String>,
    #[serde(rename = "adminSocket")]
    #[schemars(
        description = "Unix socket of an agent's API, with health and metrics [default: admin.sock in the root]",
        extend("imagelet" = flag(Node, "admin-socket").value("PATH"))
    )]
    pub(crate) admin_socket: Option<PathBuf>,
    #[serde(rename = "adminGroup")]
    #[schemars(
        description = "Group, by name or number, whose members may change things over the admin socket, which becomes theirs; needs \
                       adminSocket, as only the owner may enter the root [default: none]",
        extend("imagelet" = flag(Node, "admin-group").value("GROUP").allowed("the name or the number of a group"))
    )]
    pub(crate) admin_group: Option<String>,
    #[serde(rename = "adminOthersRead")]
    #[schemars(
        description = "Everyone who reaches the admin socket may read what holds no secret: images, pulls, the disk, which pods there \
                       are; needs adminSocket",
        extend("imagelet" = flag(Advanced, "admin-others-read"))
    )]
    pub(crate) admin_others_read: bool,
    #[serde(rename = "metricsAddress", with = "As::<Maybe<Text<SocketAddr>>>")]
    #[schemars(
        description = "Address on which an agent, or the controller of a fleet, serves metrics and health over HTTP [default: none]",
        extend("imagelet" = flag(Node, "metrics-address").value("ADDR:PORT").allowed("an address and port such as 127.0.0.1:9095"))
    )]
    pub(crate) metrics_address: Option<SocketAddr>,
    #[serde(rename = "metricsPrefix", with = "As::<Choice<MetricsPrefix>>")]
    #[schemars(
        description = "Prefix of the metrics that a kubelet also exports: kubelet, imagelet, or auto (imagelet for `serve` in front of \
                       a runtime, where a kubelet on the same node has the other names, and kubelet otherwise)",
        extend("imagelet" = flag(Advanced, "metrics-prefix"))
    )]
    pub(crate) metrics_prefix: MetricsPrefix,
    #[serde(rename = "podLogsDir")]
    #[schemars(
        description = "Directory of the logs of pods; a container's log is removed with the container",
        extend("imagelet" = flag(Collection, "pod-logs-dir").value("DIR").empty(Hidden).kubelet())
    )]
    pub(crate) pod_logs: PathBuf,
    #[serde(rename = "logging.format", with = "As::<Choice<LogFormat>>")]
    #[schemars(description = "Format of the log on stderr", extend("imagelet" = flag(Logging, "log-format")))]
    pub(crate) log_format: LogFormat,
    #[serde(rename = "logging.level", with = "As::<Choice<LevelFilter>>")]
    #[schemars(
        description = "Log level: error, warn, info, debug or trace",
        extend("imagelet" = flag(Logging, "log-level").value("LEVEL"))
    )]
    pub(crate) log_level: LevelFilter,
    #[serde(flatten)]
    pub(crate) status_page: StatusPage,
    #[serde(flatten)]
    pub(crate) pods: Pods,
    #[serde(flatten)]
    pub(crate) cluster: Cluster,
    #[serde(flatten)]
    pub(crate) fleet: FleetSettings,
    #[serde(flatten)]
    pub(crate) pulls: Pulls,
    #[serde(flatten)]
    pub(crate) back_off: BackOff,
    #[serde(flatten)]
    pub(crate) verification: Verification,
    #[serde(flatten)]
    pub(crate) credentials: Credentials,
    #[serde(flatten)]
    pub(crate) gc: Gc,
    #[serde(flatten)]
    pub(crate) eviction: Eviction,
    #[serde(flatten)]
    pub(crate) engine: Engine,
    #[serde(flatten)]
    pub(crate) traces: TraceSettings,
    /// Sources of the values, by field; an absent one is a default.
    #[serde(skip)]
    pub(crate) origins: BTreeMap<&'static str, Origin>,
    /// Notes for the log, once it is open.
    #[serde(skip)]
    pub(crate) notes: Vec<String>,
    /// Reach of registries, by the flags of a command.
    #[serde(skip)]
    pub(crate) reach: Reach,
    /// Number of images in the node's status, the largest first; -1: all. Only a kubelet's file sets it (`nodeStatusMaxImages`).
    #[serde(skip)]
    pub(crate) status_max_images: i64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            root: "/var/lib/imagelet".into(),
            image_service_endpoint: None,
            pull_engine: PullEngine::Auto,
            runtime_layers: LayerFormat::Auto,
            container_runtime_endpoint: None,
            runtime_request_timeout: Duration::from_secs(120),
            registry_config_paths: vec!["/etc/imagelet/certs.d".into(), "/etc/containerd/certs.d".into()],
            allowed_registry_targets: Vec::new(),
            kubelet_config: None,
            max_pods: DEFAULT_MAX_PODS,
            listen: None,
            admin_socket: None,
            admin_group: None,
            admin_others_read: false,
            metrics_address: None,
            metrics_prefix: MetricsPrefix::Auto,
            pod_logs: "/var/log/pods".into(),
            log_format: LogFormat::Text,
            log_level: LevelFilter::INFO,
            status_page: StatusPage::default(),
            pods: Pods::default(),
            cluster: Cluster::default(),
            fleet: FleetSettings::default(),
            pulls: Pulls::default(),
            back_off: BackOff::default(),
            verification: Verification::default(),
            credentials: Credentials::default(),
            gc: Gc::default(),
            eviction: Eviction::default(),
            engine: Engine::default(),
            traces: TraceSettings::default(),
            origins: BTreeMap::new(),
            notes: Vec::new(),
            reach: Reach::default(),
            // The kubelet's default.
            status_max_images: 50,
        }
    }
}

impl Config {
    /// Returns the defaults.
    pub(crate) fn defaults(environment: &Environment) -> Self {
        Self { root: environment.default_root(), ..Self::default() }
    }

    /// Returns the settings by field in their internal form.
    pub(super) fn fields(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            other => panic!("a configuration is no map: {other:?}"),
        }
    }

    /// Returns this configuration with these settings.
    ///
    /// # Errors
    /// Why a value is refused, where that is more than the allowed values; otherwise it is empty.
    pub(super) fn with_fields(self, fields: Map<String, Value>) -> Result<Self, String> {
        let new: Self = serde_json::from_value(Value::Object(fields)).map_err(|error| error.to_string())?;
        let Self { origins, notes, reach, status_max_images, .. } = self;
        Ok(Self { origins, notes, reach, status_max_images, ..new })
    }

    /// Replaces the value of a field.
    ///
    /// # Errors
    /// As of [`Config::with_fields`].
    pub(super) fn replace(&mut self, field: &str, value: Value) -> Result<(), String> {
        let mut fields = self.fields();
        fields.insert(field.to_owned(), value);
        *self = self.clone().with_fields(fields)?;
        Ok(())
    }
}
