//! The table of settings: one row gives the field of the file, the flag, the variable, the help text, the check and
//! how the value is shown. What is not in this table does not exist. Called by [`crate::config`] alone.

use std::time::Duration;

use serde_json::{Value, json};

use super::value::{Raw, Wrong, show_bytes, show_duration};
use super::{Config, Durability, LogFormat, LogLevel};

/// One row.
pub(crate) struct Setting {
    /// Field of the configuration file, as KubeletConfiguration spells it where it has it. A dot goes into a map.
    pub(crate) field: &'static str,
    /// The long flag, without dashes.
    pub(crate) flag: &'static str,
    /// The environment variable: `IMAGELET_` and the flag in capitals.
    pub(crate) variable: &'static str,
    /// The short flag, as crictl has it.
    pub(crate) short: Option<char>,
    /// What a value looks like, for the help text. Empty for switches.
    pub(crate) value_name: &'static str,
    /// For `--help`.
    pub(crate) help: &'static str,
    /// Checks a value and puts it into the configuration.
    pub(crate) apply: fn(&mut Config, Raw<'_>) -> Result<(), Wrong>,
    /// What is in force.
    pub(crate) show: fn(&Config) -> Value,
}

/// Longest time that a call may take.
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Largest limit on a layer: what fits a file system.
const MAX_LAYER: u64 = 1 << 60;

const DURABILITIES: [(&str, Durability); 2] = [("full", Durability::Full), ("relaxed", Durability::Relaxed)];
const LOG_FORMATS: [(&str, LogFormat); 2] = [("text", LogFormat::Text), ("json", LogFormat::Json)];
const LOG_LEVELS: [(&str, LogLevel); 5] = [
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
    ("trace", LogLevel::Trace),
];

/// Every setting, in the order in which help and `imagelet config` show them.
pub(crate) static SETTINGS: &[Setting] = &[
    Setting {
        field: "root",
        flag: "root",
        variable: "IMAGELET_ROOT",
        short: None,
        value_name: "DIR",
        help: "Directory of the embedded store \
               [default: /var/lib/imagelet for root, otherwise $XDG_DATA_HOME/imagelet or ~/.local/share/imagelet]",
        apply: |c, raw| raw.path().map(|v| c.root = v),
        show: |c| json!(c.root),
    },
    Setting {
        field: "imageServiceEndpoint",
        flag: "image-endpoint",
        variable: "IMAGELET_IMAGE_ENDPOINT",
        short: Some('i'),
        value_name: "ENDPOINT",
        help: "CRI endpoint whose images are meant, for example unix:///run/containerd/containerd.sock; without it the \
               embedded store. crictl's variables IMAGE_SERVICE_ENDPOINT and CONTAINER_RUNTIME_ENDPOINT are not read: \
               they would move images to another place unasked",
        apply: |c, raw| endpoint(raw).map(|v| c.image_service_endpoint = v),
        show: |c| json!(c.image_service_endpoint.as_deref().unwrap_or_default()),
    },
    Setting {
        field: "containerRuntimeEndpoint",
        flag: "runtime-endpoint",
        variable: "IMAGELET_RUNTIME_ENDPOINT",
        short: Some('r'),
        value_name: "ENDPOINT",
        help: "CRI endpoint of the container runtime that `serve` passes through. It is no image endpoint",
        apply: |c, raw| endpoint(raw).map(|v| c.container_runtime_endpoint = v),
        show: |c| json!(c.container_runtime_endpoint.as_deref().unwrap_or_default()),
    },
    Setting {
        field: "runtimeRequestTimeout",
        flag: "runtime-request-timeout",
        variable: "IMAGELET_RUNTIME_REQUEST_TIMEOUT",
        short: None,
        value_name: "DURATION",
        help: "Time that a call to a remote endpoint may take; pulls have no limit [default: 2m]",
        apply: |c, raw| raw.duration(Duration::from_millis(1)..=MAX_TIMEOUT).map(|v| c.runtime_request_timeout = v),
        show: |c| json!(show_duration(c.runtime_request_timeout)),
    },
    Setting {
        field: "registryConfigPaths",
        flag: "registry-config-path",
        variable: "IMAGELET_REGISTRY_CONFIG_PATH",
        short: None,
        value_name: "DIR",
        help: "Directory with <host>/hosts.toml, as containerd has it; may be given again, the first one that has the \
               host decides [default: /etc/imagelet/certs.d, then /etc/containerd/certs.d]",
        apply: |c, raw| raw.paths().map(|v| c.registry_config_paths = v),
        show: |c| json!(c.registry_config_paths),
    },
    Setting {
        field: "serializeImagePulls",
        flag: "serialize-image-pulls",
        variable: "IMAGELET_SERIALIZE_IMAGE_PULLS",
        short: None,
        value_name: "BOOL",
        help: "One pull after the other. `ensure` pulls everything at the same time unless this is set to true \
               [default: true for an agent, false for ensure]",
        apply: |c, raw| raw.boolean().map(|v| c.serialize_image_pulls = Some(v)),
        show: |c| json!(c.serialize_image_pulls),
    },
    Setting {
        field: "maxParallelImagePulls",
        flag: "max-parallel-image-pulls",
        variable: "IMAGELET_MAX_PARALLEL_IMAGE_PULLS",
        short: None,
        value_name: "N",
        help: "How many images are pulled at the same time [default: no limit]",
        apply: |c, raw| raw.count(1..=10_000).map(|v| c.max_parallel_image_pulls = Some(v)),
        show: |c| json!(c.max_parallel_image_pulls),
    },
    Setting {
        field: "maxParallelLayers",
        flag: "max-parallel-layers",
        variable: "IMAGELET_MAX_PARALLEL_LAYERS",
        short: None,
        value_name: "N",
        help: "How many layers the embedded engine fetches and unpacks at the same time [default: see `config`]",
        apply: |c, raw| raw.count(1..=256).map(|v| c.max_parallel_layers = v),
        show: |c| json!(c.max_parallel_layers),
    },
    Setting {
        field: "platform",
        flag: "platform",
        variable: "IMAGELET_PLATFORM",
        short: None,
        value_name: "OS/ARCH[/VARIANT]",
        help: "Platform that is taken from an index [default: the machine's]",
        apply: |c, raw| {
            raw.parsed("a platform such as linux/arm64", str::parse::<oci::Platform>).map(|v| c.platform = v)
        },
        show: |c| json!(c.platform.to_string()),
    },
    Setting {
        field: "durability",
        flag: "durability",
        variable: "IMAGELET_DURABILITY",
        short: None,
        value_name: "full|relaxed",
        help: "full: an image that was reported survives a power cut; relaxed: the last ones may be lost, none is \
               ever half [default: full]",
        apply: |c, raw| raw.choice(&DURABILITIES).map(|v| c.durability = v),
        show: |c| word(&DURABILITIES, c.durability),
    },
    Setting {
        field: "limits.layerBytes",
        flag: "limit-layer-bytes",
        variable: "IMAGELET_LIMIT_LAYER_BYTES",
        short: None,
        value_name: "BYTES",
        help: "Inflated bytes of a layer at most [default: see `config`]",
        apply: |c, raw| raw.bytes(1..=MAX_LAYER).map(|v| c.limits.layer_bytes = v),
        show: |c| json!(show_bytes(c.limits.layer_bytes)),
    },
    Setting {
        field: "limits.layerEntries",
        flag: "limit-layer-entries",
        variable: "IMAGELET_LIMIT_LAYER_ENTRIES",
        short: None,
        value_name: "N",
        help: "Files, directories and other entries of a layer at most [default: see `config`]",
        apply: |c, raw| raw.count(1..=1_000_000_000).map(|v| c.limits.layer_entries = v),
        show: |c| json!(c.limits.layer_entries),
    },
    Setting {
        field: "limits.pathDepth",
        flag: "limit-path-depth",
        variable: "IMAGELET_LIMIT_PATH_DEPTH",
        short: None,
        value_name: "N",
        help: "Components of a path in a layer at most [default: see `config`]",
        apply: |c, raw| raw.count(1..=2048).map(|v| c.limits.path_depth = v),
        show: |c| json!(c.limits.path_depth),
    },
    Setting {
        field: "limits.headerBytes",
        flag: "limit-header-bytes",
        variable: "IMAGELET_LIMIT_HEADER_BYTES",
        short: None,
        value_name: "BYTES",
        help: "Bytes of an extended (PAX) header in a layer at most [default: see `config`]",
        apply: |c, raw| raw.bytes(1024..=1 << 30).map(|v| c.limits.header_bytes = v),
        show: |c| json!(show_bytes(c.limits.header_bytes)),
    },
    Setting {
        field: "logging.format",
        flag: "log-format",
        variable: "IMAGELET_LOG_FORMAT",
        short: None,
        value_name: "text|json",
        help: "Form of the log on stderr [default: text]",
        apply: |c, raw| raw.choice(&LOG_FORMATS).map(|v| c.log_format = v),
        show: |c| word(&LOG_FORMATS, c.log_format),
    },
    Setting {
        field: "logging.level",
        flag: "log-level",
        variable: "IMAGELET_LOG_LEVEL",
        short: None,
        value_name: "LEVEL",
        help: "What is logged: error, warn, info, debug or trace [default: info]",
        apply: |c, raw| raw.choice(&LOG_LEVELS).map(|v| c.log_level = v),
        show: |c| word(&LOG_LEVELS, c.log_level),
    },
];

/// An endpoint in a form that the client takes; empty is none.
fn endpoint(raw: Raw<'_>) -> Result<Option<String>, Wrong> {
    raw.parsed("an endpoint such as unix:///run/containerd/containerd.sock", |text| {
        if text.is_empty() {
            return Ok(None);
        }
        cri_grpc::Endpoint::parse(text).map(|_| Some(text.to_owned())).map_err(|e| crate::exit::chain(&e))
    })
}

fn word<T: Copy + PartialEq>(words: &[(&str, T)], value: T) -> Value {
    words.iter().find(|(_, v)| *v == value).map_or(Value::Null, |(name, _)| json!(name))
}
