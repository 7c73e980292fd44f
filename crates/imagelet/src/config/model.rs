//! What can be configured, as plain values: one field for each row of [`super::settings`]. Checks nothing. Read by
//! whoever opens stores, connects, pulls or logs.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use image_manager::gc::{GcPolicy, Intervals};
use jiff::SignedDuration;
use oci::Secret;

use super::{Origin, Resume, SharedContent};
use crate::environment::Environment;

/// What survives a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    Full,
    Relaxed,
}

/// Whether files that several layers have are stored once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    Off,
    Reflink,
    Hardlink,
}

/// What a layer is made into when it is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LayerFormat {
    Auto,
    Erofs,
    Dir,
}

/// What an image and its layers may hold at most: above it a pull fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) layer_bytes: u64,
    pub(crate) layer_entries: usize,
    pub(crate) path_depth: usize,
    pub(crate) path_bytes: u64,
    pub(crate) header_bytes: u64,
    pub(crate) image_bytes: u64,
    pub(crate) image_layers: usize,
    pub(crate) inflate_ratio: usize,
    pub(crate) manifest_bytes: u64,
    pub(crate) config_bytes: u64,
}

/// Form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// What is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Whether and when pulls go. What is `None` has a default that depends on who pulls: an agent has the kubelet's, a
/// command that a person started has no limits. Numbers are as they were written; [`super::check`] looks at them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pulls {
    pub(crate) serialize: Option<bool>,
    pub(crate) max_parallel: Option<i64>,
    pub(crate) qps: Option<i64>,
    pub(crate) burst: Option<i64>,
    pub(crate) wait: Duration,
    pub(crate) per_registry: Option<usize>,
    pub(crate) linger: Duration,
    pub(crate) ageing: Duration,
    pub(crate) coalesce: bool,
    /// Zero: none. So are the following two.
    pub(crate) progress_deadline: Duration,
    pub(crate) minimum_rate: u64,
    /// Bytes a second of all pulls together; 0 is no limit.
    pub(crate) bandwidth: u64,
    pub(crate) deadline: Duration,
}

/// What happens after a pull that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BackOff {
    pub(crate) initial: Duration,
    pub(crate) max: Duration,
    pub(crate) by_cause: bool,
    pub(crate) event_per_check: bool,
}

/// Which pods may have an image that is on the node already. As written: the kubelet's validation words its own errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verification {
    pub(crate) policy: String,
    pub(crate) allowlist: Vec<String>,
}

/// How a credential's path matches an image's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathMatch {
    /// `reg/a` is for `reg/a` and `reg/a/b`.
    Segments,
    /// As upstream: `reg/a` is for `reg/ab` as well.
    Compat,
}

/// Where credentials come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) path_match: PathMatch,
    pub(crate) anonymous_fallback: bool,
    /// `None`: the kubelet's search paths.
    pub(crate) docker_config_paths: Option<Vec<PathBuf>>,
    pub(crate) helper_timeout: Duration,
    pub(crate) provider_timeout: Duration,
    pub(crate) provider_config: Option<PathBuf>,
    pub(crate) provider_bin_dir: Option<PathBuf>,
    pub(crate) secrets_directory: Option<PathBuf>,
    pub(crate) token_directory: Option<PathBuf>,
}

/// In which order images are collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GcOrder {
    LeastHarm,
    LeastRecentlyUsed,
}

/// When images are collected, and which stay. Numbers and ages are as they were written; [`super::check`] looks at them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gc {
    pub(crate) high: i64,
    pub(crate) low: i64,
    pub(crate) min_age: SignedDuration,
    pub(crate) max_age: SignedDuration,
    /// `None`: where imagelet itself knows the containers.
    pub(crate) enabled: Option<bool>,
    pub(crate) order: GcOrder,
    pub(crate) minimum_copies: usize,
    /// Texts that were checked, see [`super::keep`].
    pub(crate) keep: Vec<String>,
    pub(crate) protect: Duration,
    /// Empty: the runtime pins it.
    pub(crate) sandbox_image: String,
    pub(crate) on_full_disk: bool,
    pub(crate) detect_period: Duration,
    pub(crate) list_period: Duration,
    pub(crate) period: Duration,
    pub(crate) pressure_period: Duration,
}

/// When the disk is under pressure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Eviction {
    /// Signals and thresholds as they were written; `None`: the defaults. [`super::eviction`] reads them.
    pub(crate) hard: Option<Vec<(String, String)>>,
    pub(crate) merge: bool,
    pub(crate) transition: Duration,
}

/// Which containers stay that have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContainerGc {
    pub(crate) min_age: SignedDuration,
    /// Below 0: any number. So is the next one.
    pub(crate) per_container: i64,
    pub(crate) maximum: i64,
    pub(crate) period: Duration,
}

/// Pods that this node keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pods {
    /// `None`: no directory. So is the address.
    pub(crate) manifests: Option<PathBuf>,
    pub(crate) url: Option<String>,
    pub(crate) headers: Vec<(String, Secret)>,
    pub(crate) file_period: Duration,
    pub(crate) http_period: Duration,
    pub(crate) sync_period: Duration,
    pub(crate) documents: Option<PathBuf>,
    /// `None`: the machine's.
    pub(crate) node_name: Option<String>,
    /// Empty: the machine's.
    pub(crate) node_ips: Vec<IpAddr>,
    pub(crate) cluster_dns: Vec<IpAddr>,
    pub(crate) cluster_domain: String,
    pub(crate) resolv_conf: Option<PathBuf>,
    /// Empty: the runtime's choice.
    pub(crate) cgroup: String,
    pub(crate) seccomp_default: bool,
    pub(crate) longest_restart_delay: Duration,
    pub(crate) log_size: u64,
    pub(crate) log_files: usize,
    pub(crate) log_workers: usize,
    pub(crate) log_period: Duration,
}

/// Everything that can be configured.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) root: PathBuf,
    pub(crate) kubelet_config: Option<PathBuf>,
    pub(crate) image_service_endpoint: Option<String>,
    pub(crate) container_runtime_endpoint: Option<String>,
    pub(crate) runtime_request_timeout: Duration,
    pub(crate) registry_config_paths: Vec<PathBuf>,
    pub(crate) allowed_registry_targets: Vec<image_service::AllowedTarget>,
    /// Pods that the node holds: the caches of pull records are measured by it.
    pub(crate) max_pods: i64,
    pub(crate) admin_socket: Option<PathBuf>,
    pub(crate) metrics_address: Option<SocketAddr>,
    pub(crate) pods: Pods,
    pub(crate) pulls: Pulls,
    pub(crate) back_off: BackOff,
    pub(crate) verification: Verification,
    pub(crate) credentials: Credentials,
    pub(crate) max_parallel_layers: usize,
    pub(crate) pull_memory: u64,
    pub(crate) check_disk_space: bool,
    /// Whether one layer may come over several connections.
    pub(crate) parallel_ranges: bool,
    pub(crate) platform: oci::Platform,
    /// `None`: every image is accepted.
    pub(crate) signature_policy: Option<PathBuf>,
    pub(crate) durability: Durability,
    pub(crate) keep_blobs: bool,
    pub(crate) shared_content: SharedContent,
    pub(crate) resume: Resume,
    pub(crate) share_files: Sharing,
    pub(crate) layer_format: LayerFormat,
    pub(crate) limits: Limits,
    pub(crate) gc: Gc,
    pub(crate) status_max_images: i64,
    pub(crate) eviction: Eviction,
    pub(crate) container_gc: ContainerGc,
    pub(crate) pod_logs: PathBuf,
    pub(crate) log_format: LogFormat,
    pub(crate) log_level: LogLevel,
    /// Where the values came from, by field; absent ones are defaults.
    pub(crate) origins: BTreeMap<&'static str, Origin>,
    /// What is to be told when there is a log.
    pub(crate) notes: Vec<String>,
}

/// The kubelet's `maxPods`.
pub(crate) const DEFAULT_MAX_PODS: i64 = 110;
/// Where `imagelet run` looks for manifests when nobody says.
pub(crate) const DEFAULT_MANIFESTS: &str = "/etc/imagelet/manifests";
/// The kubelet's default `imagePullCredentialsVerificationPolicy`.
pub(crate) const DEFAULT_POLICY: &str = "NeverVerifyPreloadedImages";

impl Config {
    /// What holds where nothing is said.
    pub(crate) fn defaults(environment: &Environment) -> Self {
        let engine = image_service::EngineOptions::default();
        let limits = &engine.store.limits;
        let policy = GcPolicy::default();
        let periods = Intervals::default();
        // Ages of the library are minutes.
        let age = |age: Duration| SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX);
        Self {
            root: environment.default_root(),
            kubelet_config: None,
            image_service_endpoint: None,
            container_runtime_endpoint: None,
            runtime_request_timeout: Duration::from_secs(120),
            registry_config_paths: vec!["/etc/imagelet/certs.d".into(), "/etc/containerd/certs.d".into()],
            allowed_registry_targets: Vec::new(),
            max_pods: DEFAULT_MAX_PODS,
            admin_socket: None,
            metrics_address: None,
            pods: Pods {
                manifests: Some(DEFAULT_MANIFESTS.into()),
                url: None,
                headers: Vec::new(),
                file_period: Duration::from_secs(20),
                http_period: Duration::from_secs(20),
                sync_period: Duration::from_secs(60),
                documents: None,
                node_name: None,
                node_ips: Vec::new(),
                cluster_dns: Vec::new(),
                cluster_domain: String::new(),
                resolv_conf: Some("/etc/resolv.conf".into()),
                cgroup: String::new(),
                seccomp_default: false,
                longest_restart_delay: Duration::from_secs(300),
                log_size: 10 << 20,
                log_files: 5,
                log_workers: 1,
                log_period: Duration::from_secs(10),
            },
            pulls: Pulls {
                serialize: None,
                max_parallel: None,
                qps: None,
                burst: None,
                wait: Duration::from_secs(30),
                per_registry: None,
                linger: Duration::from_millis(500),
                ageing: Duration::from_secs(60),
                coalesce: true,
                progress_deadline: Duration::from_secs(300),
                minimum_rate: 0,
                bandwidth: 0,
                deadline: Duration::ZERO,
            },
            back_off: BackOff {
                initial: Duration::from_secs(10),
                max: Duration::from_secs(300),
                by_cause: true,
                event_per_check: false,
            },
            verification: Verification { policy: DEFAULT_POLICY.to_owned(), allowlist: Vec::new() },
            credentials: Credentials {
                path_match: PathMatch::Segments,
                anonymous_fallback: false,
                docker_config_paths: None,
                helper_timeout: Duration::from_secs(30),
                provider_timeout: Duration::from_secs(60),
                provider_config: None,
                provider_bin_dir: None,
                secrets_directory: None,
                token_directory: None,
            },
            max_parallel_layers: engine.max_parallel_layers,
            pull_memory: engine.memory as u64,
            check_disk_space: engine.check_disk_space,
            parallel_ranges: engine.ranges.per_blob > 1,
            platform: oci::Platform::host(),
            signature_policy: None,
            durability: Durability::Full,
            keep_blobs: engine.keep_blobs,
            shared_content: engine.shared_content,
            resume: engine.resume,
            share_files: Sharing::Off,
            layer_format: LayerFormat::Auto,
            limits: Limits {
                layer_bytes: limits.layer_bytes,
                layer_entries: usize::try_from(limits.entries).unwrap_or(usize::MAX),
                path_depth: limits.path_depth,
                path_bytes: limits.path_bytes as u64,
                header_bytes: limits.pax_header_bytes as u64,
                image_bytes: engine.limits.image_bytes,
                image_layers: engine.limits.image_layers,
                inflate_ratio: usize::try_from(engine.limits.inflate_ratio).unwrap_or(usize::MAX),
                manifest_bytes: engine.limits.manifest_bytes,
                config_bytes: engine.limits.config_bytes,
            },
            gc: Gc {
                high: policy.high_threshold_percent.into(),
                low: policy.low_threshold_percent.into(),
                min_age: age(policy.min_age),
                max_age: age(policy.max_age),
                enabled: None,
                order: GcOrder::LeastHarm,
                minimum_copies: 0,
                keep: Vec::new(),
                protect: Duration::from_secs(3600),
                sandbox_image: String::new(),
                on_full_disk: true,
                detect_period: periods.detect,
                list_period: periods.cache,
                period: periods.collect,
                pressure_period: Duration::from_secs(10),
            },
            status_max_images: 50,
            eviction: Eviction { hard: None, merge: false, transition: Duration::from_secs(300) },
            container_gc: ContainerGc {
                min_age: SignedDuration::ZERO,
                per_container: 1,
                maximum: -1,
                period: Duration::from_secs(60),
            },
            pod_logs: "/var/log/pods".into(),
            log_format: LogFormat::Text,
            log_level: LogLevel::Info,
            origins: BTreeMap::new(),
            notes: Vec::new(),
        }
    }
}
