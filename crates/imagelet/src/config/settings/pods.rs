//! The rows about pods that `imagelet run` keeps: where they come from, what the node gives them, and their logs. Names, units
//! and defaults are KubeletConfiguration's where it has them.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use oci::Secret;
use serde_json::{Value, json};

use super::{Group, Setting};
use crate::config::value::{Raw, Wrong, show_bytes, show_duration};

/// Longest time between two turns of a loop.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Shortest one of what costs little.
const OFTEN: Duration = Duration::from_millis(100);
const SECOND: Duration = Duration::from_secs(1);

pub(super) static ROWS: &[Setting] = &[
    Setting {
        field: "staticPodPath",
        flag: "pod-manifest-path",
        variable: "IMAGELET_POD_MANIFEST_PATH",
        short: None,
        value_name: "PATH",
        list: None,
        group: Group::Pods,
        help: "Directory of pod manifests, or one manifest, that `run` keeps running; empty: none. `run --manifests \
               DIR` says the same, as often as needed",
        apply: |c, raw| raw.optional_path().map(|v| c.pods.manifests = v),
        show: |c| json!(c.pods.manifests.as_deref().unwrap_or(Path::new(""))),
    },
    Setting {
        field: "staticPodURL",
        flag: "manifest-url",
        variable: "IMAGELET_MANIFEST_URL",
        short: None,
        value_name: "URL",
        list: None,
        group: Group::Pods,
        help: "Address from which `run` takes pods, as one manifest or a PodList [default: none]",
        apply: |c, raw| raw.parsed("an address such as https://config.example/pods", url).map(|v| c.pods.url = v),
        show: |c| json!(c.pods.url),
    },
    Setting {
        field: "staticPodURLHeader",
        flag: "manifest-url-header",
        variable: "IMAGELET_MANIFEST_URL_HEADER",
        short: None,
        value_name: "NAME:VALUE",
        list: Some(','),
        group: Group::Pods,
        help: "Headers that are sent to staticPodURL; may be given again. Their values are never shown [default: none]",
        apply: |c, raw| raw.headers().map(|v| c.pods.headers = v),
        show: |c| headers(&c.pods.headers),
    },
    Setting {
        field: "fileCheckFrequency",
        flag: "file-check-frequency",
        variable: "IMAGELET_FILE_CHECK_FREQUENCY",
        short: None,
        value_name: "DURATION",
        list: None,
        group: Group::Pods,
        help: "How often manifests on disk are read again though nothing was seen to change",
        apply: |c, raw| raw.duration(OFTEN..=DAY).map(|v| c.pods.file_period = v),
        show: |c| json!(show_duration(c.pods.file_period)),
    },
    Setting {
        field: "httpCheckFrequency",
        flag: "http-check-frequency",
        variable: "IMAGELET_HTTP_CHECK_FREQUENCY",
        short: None,
        value_name: "DURATION",
        list: None,
        group: Group::Pods,
        help: "How often staticPodURL is asked",
        apply: |c, raw| raw.duration(OFTEN..=DAY).map(|v| c.pods.http_period = v),
        show: |c| json!(show_duration(c.pods.http_period)),
    },
    Setting {
        field: "syncFrequency",
        flag: "sync-frequency",
        variable: "IMAGELET_SYNC_FREQUENCY",
        short: None,
        value_name: "DURATION",
        list: None,
        group: Group::Pods,
        help: "How often a pod is looked at though nothing happened to it",
        apply: |c, raw| raw.duration(SECOND..=DAY).map(|v| c.pods.sync_period = v),
        show: |c| json!(show_duration(c.pods.sync_period)),
    },
    Setting {
        field: "documentsDirectory",
        flag: "documents-dir",
        variable: "IMAGELET_DOCUMENTS_DIR",
        short: None,
        value_name: "DIR",
        list: None,
        group: Group::Pods,
        help: "Directory of ConfigMap and Secret manifests (*.yaml, *.yml, *.json) for the variables and volumes of \
               pods [default: none]",
        apply: |c, raw| raw.path().map(|v| c.pods.documents = Some(v)),
        show: |c| json!(c.pods.documents),
    },
    Setting {
        field: "nodeName",
        flag: "node-name",
        variable: "IMAGELET_NODE_NAME",
        short: None,
        value_name: "NAME",
        list: None,
        group: Group::Pods,
        help: "Name of this node, which stands behind the names of pods [default: the host name in lower case]",
        apply: |c, raw| {
            raw.parsed("a name of lower case letters, digits, `-` and `.`", node_name)
                .map(|v| c.pods.node_name = Some(v))
        },
        show: |c| json!(c.pods.node_name),
    },
    Setting {
        field: "nodeIP",
        flag: "node-ip",
        variable: "IMAGELET_NODE_IP",
        short: None,
        value_name: "IP",
        list: Some(','),
        group: Group::Pods,
        help: "Addresses of this node, the first one being its own [default: the first address that is not a loopback \
               one]",
        apply: |c, raw| addresses(raw).map(|v| c.pods.node_ips = v),
        show: |c| list(&c.pods.node_ips),
    },
    Setting {
        field: "clusterDNS",
        flag: "cluster-dns",
        variable: "IMAGELET_CLUSTER_DNS",
        short: None,
        value_name: "IP",
        list: Some(','),
        group: Group::Pods,
        help: "Name servers of pods with the DNS policy ClusterFirst; without any they ask whom the node asks [default: \
               none]",
        apply: |c, raw| addresses(raw).map(|v| c.pods.cluster_dns = v),
        show: |c| list(&c.pods.cluster_dns),
    },
    Setting {
        field: "clusterDomain",
        flag: "cluster-domain",
        variable: "IMAGELET_CLUSTER_DOMAIN",
        short: None,
        value_name: "DOMAIN",
        list: None,
        group: Group::Pods,
        help: "Domain in which those name servers know pods [default: none]",
        apply: |c, raw| raw.text("a domain").map(|v| c.pods.cluster_domain = v),
        show: |c| text(&c.pods.cluster_domain),
    },
    Setting {
        field: "resolvConf",
        flag: "resolv-conf",
        variable: "IMAGELET_RESOLV_CONF",
        short: None,
        value_name: "PATH",
        list: None,
        group: Group::Pods,
        help: "The resolver file that says whom the node asks for names; empty: none",
        apply: |c, raw| raw.optional_path().map(|v| c.pods.resolv_conf = v),
        show: |c| json!(c.pods.resolv_conf.as_deref().unwrap_or(Path::new(""))),
    },
    Setting {
        field: "podCgroup",
        flag: "pod-cgroup",
        variable: "IMAGELET_POD_CGROUP",
        short: None,
        value_name: "CGROUP",
        list: None,
        group: Group::Pods,
        help: "Cgroup in which those of pods lie: a path such as /pods, or for a runtime with systemd's driver a slice \
               such as pods.slice [default: the runtime's choice]",
        apply: |c, raw| raw.text("a path or the name of a slice").map(|v| c.pods.cgroup = v),
        show: |c| text(&c.pods.cgroup),
    },
    Setting {
        field: "seccompDefault",
        flag: "seccomp-default",
        variable: "IMAGELET_SECCOMP_DEFAULT",
        short: None,
        value_name: "BOOL",
        list: None,
        group: Group::Pods,
        help: "Whether containers that name no seccomp profile have the runtime's, instead of none",
        apply: |c, raw| raw.boolean().map(|v| c.pods.seccomp_default = v),
        show: |c| json!(c.pods.seccomp_default),
    },
    Setting {
        field: "crashLoopBackOff.maxContainerRestartPeriod",
        flag: "max-container-restart-period",
        variable: "IMAGELET_MAX_CONTAINER_RESTART_PERIOD",
        short: None,
        value_name: "DURATION",
        list: None,
        group: Group::Pods,
        help: "The longest time that a container which keeps ending waits before it is started again",
        apply: |c, raw| raw.duration(SECOND..=Duration::from_secs(300)).map(|v| c.pods.longest_restart_delay = v),
        show: |c| json!(show_duration(c.pods.longest_restart_delay)),
    },
    Setting {
        field: "containerLogMaxSize",
        flag: "container-log-max-size",
        variable: "IMAGELET_CONTAINER_LOG_MAX_SIZE",
        short: None,
        value_name: "BYTES",
        list: None,
        group: Group::Pods,
        help: "The log of a container is rotated when it is larger than this",
        apply: |c, raw| raw.quantity(4096..=1 << 40).map(|v| c.pods.log_size = v),
        show: |c| json!(show_bytes(c.pods.log_size)),
    },
    Setting {
        field: "containerLogMaxFiles",
        flag: "container-log-max-files",
        variable: "IMAGELET_CONTAINER_LOG_MAX_FILES",
        short: None,
        value_name: "N",
        list: None,
        group: Group::Pods,
        help: "So many files the log of a container has at most",
        apply: |c, raw| raw.count(2..=1000).map(|v| c.pods.log_files = v),
        show: |c| json!(c.pods.log_files),
    },
    Setting {
        field: "containerLogMaxWorkers",
        flag: "container-log-max-workers",
        variable: "IMAGELET_CONTAINER_LOG_MAX_WORKERS",
        short: None,
        value_name: "N",
        list: None,
        group: Group::Pods,
        help: "So many logs are rotated at the same time",
        apply: |c, raw| raw.count(1..=64).map(|v| c.pods.log_workers = v),
        show: |c| json!(c.pods.log_workers),
    },
    Setting {
        field: "containerLogMonitorInterval",
        flag: "container-log-monitor-interval",
        variable: "IMAGELET_CONTAINER_LOG_MONITOR_INTERVAL",
        short: None,
        value_name: "DURATION",
        list: None,
        group: Group::Pods,
        help: "How often the sizes of logs are looked at",
        apply: |c, raw| raw.duration(OFTEN..=DAY).map(|v| c.pods.log_period = v),
        show: |c| json!(show_duration(c.pods.log_period)),
    },
];

/// Text that is not there when it is empty.
fn text(text: &str) -> Value {
    if text.is_empty() { Value::Null } else { json!(text) }
}

fn list<T: ToString>(list: &[T]) -> Value {
    if list.is_empty() { Value::Null } else { list.iter().map(|item| Value::from(item.to_string())).collect() }
}

/// The names alone: values may be passwords. What is shown is no value that could be read again.
fn headers(headers: &[(String, Secret)]) -> Value {
    let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
    if names.is_empty() { Value::Null } else { json!(format!("{} (values are not shown)", names.join(", "))) }
}

fn addresses(raw: Raw<'_>) -> Result<Vec<IpAddr>, Wrong> {
    let words = raw.words()?;
    let read = words.iter().map(|word| word.trim().parse()).collect::<Result<_, _>>();
    read.map_err(|_| Wrong("a list of IP addresses".into()))
}

fn url(text: &str) -> Result<Option<String>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let url = url::Url::parse(text).map_err(|error| error.to_string())?;
    match url.scheme() {
        "http" | "https" => Ok(Some(text.to_owned())),
        other => Err(format!("{other} is no scheme for it")),
    }
}

/// A name that may stand behind the name of a pod.
fn node_name(text: &str) -> Result<String, &'static str> {
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let inner = text.chars().all(|c| letters(c) || c == '-' || c == '.');
    let ends = text.starts_with(letters) && text.ends_with(letters);
    if !inner || !ends {
        return Err("it is no name of a host in lower case");
    }
    if text.len() > 253 { Err("it is too long") } else { Ok(text.to_owned()) }
}
