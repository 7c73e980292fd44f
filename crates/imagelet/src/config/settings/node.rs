//! The rows about the node: where imagelet keeps its things, and to whom it talks.

use std::net::SocketAddr;
use std::time::Duration;

use registry::AllowedTarget;
use serde_json::json;

use super::{Group, Setting};
use crate::config::value::{Raw, Wrong, show_duration};

/// Longest time that a call may take.
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

pub(super) static ROWS: &[Setting] = &[
    Setting {
        field: "root",
        flag: "root",
        variable: "IMAGELET_ROOT",
        short: None,
        value_name: "DIR",
        list: None,
        group: Group::Node,
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
        list: None,
        group: Group::Node,
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
        list: None,
        group: Group::Node,
        help: "CRI endpoint of the container runtime that `serve` passes through, and on which `run` runs pods. It is no image \
               endpoint, except for `run`, whose images are behind it unless imageServiceEndpoint says otherwise [default: \
               none; for run the first of /run/containerd/containerd.sock and /run/crio/crio.sock that is there]",
        apply: |c, raw| endpoint(raw).map(|v| c.container_runtime_endpoint = v),
        show: |c| json!(c.container_runtime_endpoint.as_deref().unwrap_or_default()),
    },
    Setting {
        field: "runtimeRequestTimeout",
        flag: "runtime-request-timeout",
        variable: "IMAGELET_RUNTIME_REQUEST_TIMEOUT",
        short: None,
        value_name: "DURATION",
        list: None,
        group: Group::Node,
        help: "Time that a call to a remote endpoint may take; pulls have no limit",
        apply: |c, raw| raw.duration(Duration::from_millis(1)..=MAX_TIMEOUT).map(|v| c.runtime_request_timeout = v),
        show: |c| json!(show_duration(c.runtime_request_timeout)),
    },
    Setting {
        field: "registryConfigPaths",
        flag: "registry-config-path",
        variable: "IMAGELET_REGISTRY_CONFIG_PATH",
        short: None,
        value_name: "DIR",
        list: Some(':'),
        group: Group::Node,
        help: "Directory with <host>/hosts.toml, as containerd has it; may be given again, the first one that has the \
               host decides [default: /etc/imagelet/certs.d, then /etc/containerd/certs.d]",
        apply: |c, raw| raw.paths().map(|v| c.registry_config_paths = v),
        show: |c| json!(c.registry_config_paths),
    },
    Setting {
        field: "allowedRegistryTargets",
        flag: "allowed-registry-target",
        variable: "IMAGELET_ALLOWED_REGISTRY_TARGET",
        short: None,
        value_name: "TARGET",
        list: Some(','),
        group: Group::Node,
        help: "Where a registry may redirect to, or have its token service, though it is in plain HTTP, on this machine or at a \
               private or link-local address and the registry is not: origins (http://storage.example:9000) and networks \
               (10.0.0.0/8); may be given again [default: nowhere]",
        apply: |c, raw| targets(raw).map(|v| c.allowed_registry_targets = v),
        show: |c| shown_targets(&c.allowed_registry_targets),
    },
    Setting {
        field: "kubeletConfig",
        flag: "kubelet-config",
        variable: "IMAGELET_KUBELET_CONFIG",
        short: None,
        value_name: "FILE",
        list: None,
        group: Group::Node,
        help: "A kubelet's configuration file (KubeletConfiguration, YAML or JSON): what concerns images is taken from it; \
               whatever is said elsewhere counts more",
        apply: |c, raw| raw.path().map(|v| c.kubelet_config = Some(v)),
        show: |c| json!(c.kubelet_config),
    },
    Setting {
        field: "maxPods",
        flag: "max-pods",
        variable: "IMAGELET_MAX_PODS",
        short: None,
        value_name: "N",
        list: None,
        group: Group::Node,
        help: "Pods that the node holds at most; the caches of pull records are made for so many",
        apply: |c, raw| raw.integer().map(|v| c.max_pods = v),
        show: |c| json!(c.max_pods),
    },
    Setting {
        field: "adminSocket",
        flag: "admin-socket",
        variable: "IMAGELET_ADMIN_SOCKET",
        short: None,
        value_name: "PATH",
        list: None,
        group: Group::Node,
        help: "Unix socket on which an agent answers for its state: health, metrics, back-off [default: \
               admin.sock in the root]",
        apply: |c, raw| raw.path().map(|v| c.admin_socket = Some(v)),
        show: |c| json!(c.admin_socket),
    },
    Setting {
        field: "metricsAddress",
        flag: "metrics-address",
        variable: "IMAGELET_METRICS_ADDRESS",
        short: None,
        value_name: "ADDR:PORT",
        list: None,
        group: Group::Node,
        help: "Address on which an agent serves its metrics over HTTP [default: none]",
        apply: |c, raw| {
            let address = raw.parsed("an address and port such as 127.0.0.1:9095", str::parse::<SocketAddr>);
            address.map(|v| c.metrics_address = Some(v))
        },
        show: |c| json!(c.metrics_address),
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

fn targets(raw: Raw<'_>) -> Result<Vec<AllowedTarget>, Wrong> {
    let words = raw.words()?;
    let read = words.iter().map(|word| word.trim().parse()).collect::<Result<_, _>>();
    read.map_err(|_| {
        Wrong("a list of origins such as http://storage.example:9000 and networks such as 10.0.0.0/8".into())
    })
}

fn shown_targets(targets: &[AllowedTarget]) -> serde_json::Value {
    if targets.is_empty() {
        return json!(null);
    }
    targets.iter().map(|target| json!(target.to_string())).collect()
}
