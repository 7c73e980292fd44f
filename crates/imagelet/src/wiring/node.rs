//! Builds a node that runs pods from the configuration: its sources, its facts, its runtime and its images. Holds no rule of its own.
//! Called by `run` and by the commands that find its runtime.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent::admin::AdminAddress;
use agent::collection::Collection;
use agent::node::{Node, NodeParts, Reading, ServerSide, WantedPods, machine};
use cri_api::RuntimeService;
use cri_grpc::Endpoint;
use image_manager::WallClock;
use kuberuntime::PodContext;
use kuberuntime::config::{ClusterDns, NodeResources};
use kuberuntime::logs::LogRotationOptions;
use kuberuntime::sources::{Source, UrlSource};
use kuberuntime::sync::NodeFacts;
use kuberuntime::volumes::Volumes;
use oci::Quantity;

use super::waiting::until_available;
use crate::app::{App, collection_parts};
use crate::config::{Config, eviction};
use crate::endpoint::{self, connect_pod_runtime, parse_endpoint};
use crate::exit::{Code, Failure, Outcome};
use crate::manager::Mode;

/// Returns the sources that the configuration and the command line name.
pub(crate) fn sources(config: &Config, manifests: &[PathBuf]) -> Vec<Source> {
    let pods = &config.pods;
    let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let is_chosen = config.origins.contains_key("staticPodPath");
    let configured = |path: &PathBuf| match is_chosen {
        true => Source::Path(path.clone()),
        false => Source::DefaultPath(path.clone()),
    };
    let paths: Vec<Source> = match manifests {
        [] => pods.manifests.iter().map(configured).collect(),
        given => given.iter().map(|path| Source::Path(absolute(path))).collect(),
    };
    let url = pods.url.iter().map(|url| Source::Url(UrlSource { url: url.clone(), headers: Vec::new() }));
    let documents = pods.documents.iter().cloned().map(Source::Documents);
    paths.into_iter().chain(url).chain(documents).collect()
}

/// Number of logs that are rotated at the same time: the kubelet's default. A rotation is a rename and a call of the runtime.
const LOG_WORKERS: usize = 1;
/// Interval at which the sizes of logs are checked: the kubelet's default.
const LOG_PERIOD: Duration = Duration::from_secs(10);
/// Interval of syncs without an event: the kubelet's default. Events and probes cause a sync at once.
const SYNC_PERIOD: Duration = Duration::from_secs(60);

/// Returns how logs of containers are rotated.
fn rotation(config: &Config, clock: WallClock) -> LogRotationOptions {
    let pods = &config.pods;
    LogRotationOptions {
        max_size: pods.log_size,
        max_files: pods.log_files,
        workers: LOG_WORKERS,
        interval: LOG_PERIOD,
        ..LogRotationOptions::new(config.pod_logs.clone(), clock)
    }
}

/// Connects to the runtime behind an endpoint, and fails if it is none.
async fn runtime(app: &App, endpoint: &Endpoint) -> Outcome<Arc<dyn RuntimeService>> {
    let of_setting = |failure: Failure| match failure.code() {
        Code::Config => Failure::new(Code::Config, format!("containerRuntimeEndpoint: {}", failure.lines().join("; "))),
        _ => failure,
    };
    let (runtime, version) = connect_pod_runtime(&app.config, endpoint).await.map_err(of_setting)?;
    let (runtime_name, runtime_version) = (version.runtime_name, version.runtime_version);
    tracing::info!(%endpoint, runtime_name, runtime_version, "pods run on this runtime");
    Ok(runtime)
}

/// Returns the admin endpoint of a process that runs pods. It is required, since `pods` and `describe` ask there.
pub(crate) fn admin_address(config: &Config) -> AdminAddress {
    AdminAddress { required: true, ..endpoint::admin_address(config) }
}

/// Returns how manifests are read by the configuration, for a long-running node or for a command in the foreground.
pub(crate) fn reading(config: &Config, keeps_running: bool) -> Reading {
    let mut reading = Reading::new(config.pods.node_name(), keeps_running);
    reading.options.seccomp_default = config.pods.seccomp_default;
    reading
}

/// Connects, and assembles the parts of a node. Nothing runs yet.
pub(crate) async fn open(
    app: &App,
    reading: Reading,
    sources: Vec<Source>,
    server: Option<ServerSide>,
) -> Outcome<Node> {
    let keeps_running = reading.keeps_running();
    let clock = Arc::clone(&reading.options.wall_clock);
    let pods = WantedPods::new(reading, sources, app.config.credentials.secrets_directory.clone()).await?;
    let pods = pods.with_server(server);
    let endpoint = parse_endpoint(app.config.container_runtime_endpoint.as_deref().unwrap_or_default())?;
    let waits = keeps_running.then(|| admin_address(&app.config));
    let runtime = until_available(app, waits.as_ref(), async || runtime(app, &endpoint).await).await?;
    let images = until_available(app, waits.as_ref(), async || app.images().await).await?;
    let mut parts =
        collection_parts(&app.config, images, images.service(), Ok(Some(Arc::clone(&runtime))), pods.events());
    let sandbox_image = app.sandbox_image_lookup(&endpoint, &runtime);
    parts.images.sandbox_image_lookup = Some(Arc::clone(&sandbox_image));
    parts.images.records = app.records_to_prune().await;
    let volumes = Arc::new(Volumes::new(app.config.root.join("pods")));
    let pod_logs = app.config.pod_logs.display().to_string();
    let evictor = pods.evictor(Arc::clone(&runtime), Arc::clone(&volumes), pod_logs);
    parts.pods = Some(pods.known_pods(&evictor));
    let collection = Arc::new(Collection::open(parts).await?);
    app.collects(Arc::clone(&collection));
    let mode = if keeps_running { Mode::Agent } else { Mode::OneShot };
    let managed = app.managed(pods.events(), mode).await?;
    managed.recover(&app.config, &*images.service()).await?;
    let config = app.config.clone();
    let facts = tokio::task::spawn_blocking(move || facts(&config)).await;
    let parts = NodeParts {
        runtime: managed.watched(runtime),
        runtime_endpoint: endpoint.to_string(),
        images: Arc::clone(&managed.manager),
        sandbox_image,
        collection,
        collects: app.config.gc.enabled.unwrap_or(true),
        facts: facts.map_err(|_| Failure::failed("read the facts of the node: the reader panicked"))?,
        volumes,
        evictor,
        logs: rotation(&app.config, clock),
        sync_period: SYNC_PERIOD,
    };
    Ok(Node::new(pods, parts))
}

/// Returns the facts about this machine that its pods need. Blocks while it reads small files.
fn facts(config: &Config) -> NodeFacts {
    let pods = &config.pods;
    let ips = if pods.node_ips.is_empty() { machine::addresses() } else { pods.node_ips.clone() };
    let memory = machine::memory_bytes();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let amount = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let disk = rustix::fs::statvfs(&config.root).map_or(0, |disk| disk.f_blocks.saturating_mul(disk.f_frsize));
    // The same figures as those of the Node, if there is one.
    let for_pods = if super::cluster::is_wanted(config) {
        cluster::node::allocatable(memory, super::cluster::disk(&eviction::thresholds(&config.eviction), disk))
    } else {
        (memory, disk)
    };
    let texts = |list: &[std::net::IpAddr]| list.iter().map(ToString::to_string).collect();
    let chosen = config.origins.contains_key("resolvConf");
    NodeFacts {
        context: PodContext {
            node_name: config.pods.node_name(),
            host_ips: texts(&ips),
            pod_ips: Vec::new(),
            allocatable_cpu: Quantity::milli(amount(cores as u64).saturating_mul(1000)),
            allocatable_memory: Quantity::bytes(amount(for_pods.0)),
            allocatable_ephemeral_storage: Quantity::bytes(amount(for_pods.1)),
        },
        resources: NodeResources { memory, cgroup_v2: Path::new("/sys/fs/cgroup/cgroup.controllers").exists() },
        dns: pods.resolv_conf.as_ref().map(|path| machine::resolver(path, chosen)).unwrap_or_default(),
        cluster_dns: ClusterDns { servers: texts(&pods.cluster_dns), domain: pods.cluster_domain.clone() },
        hosts_file: fs::read_to_string("/etc/hosts").unwrap_or_default(),
        pod_logs: config.pod_logs.display().to_string(),
        container_logs: machine::container_links(&config.pod_logs).map(|path| path.display().to_string()),
        cgroup_parent: pods.cgroup.clone(),
        longest_restart_delay: pods.longest_restart_delay,
        wall_clock: Arc::new(jiff::Timestamp::now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;

    #[test]
    fn a_node_has_a_name_and_an_address() {
        let mut config = Config::defaults(&Environment::default());
        config.pods.node_name = Some("edge-1".to_owned());
        config.pods.node_ips = vec!["192.0.2.7".parse().expect("an address")];
        let facts = facts(&config);
        assert_eq!(
            (&*facts.context.node_name, &*facts.context.host_ips),
            ("edge-1", ["192.0.2.7".to_owned()].as_slice())
        );
        assert!(facts.resources.memory > 1 << 20 && facts.context.allocatable_cpu.milli_value() >= 1000);
        config.pods.node_ips = Vec::new();
        assert!(!super::facts(&config).context.host_ips.is_empty());
    }

    #[test]
    fn sources_are_those_of_the_command_line_or_of_the_configuration() {
        let mut config = Config::defaults(&Environment::default());
        let shown = |sources: Vec<Source>| -> Vec<String> {
            let one = |source: Source| match source {
                Source::Path(path) => format!("pods {}", path.display()),
                Source::DefaultPath(path) => format!("default pods {}", path.display()),
                Source::Documents(path) => format!("documents {}", path.display()),
                Source::Url(url) => format!("url {}", url.url),
                Source::Once(_) => "once".to_owned(),
                Source::Cluster(_) => "cluster".to_owned(),
            };
            sources.into_iter().map(one).collect()
        };
        assert_eq!(shown(sources(&config, &[])), ["default pods /etc/imagelet/manifests"]);
        assert_eq!(shown(sources(&config, &["/a".into(), "/b".into()])), ["pods /a", "pods /b"]);
        config.pods.manifests = None;
        assert!(sources(&config, &[]).is_empty());
        config.pods.url = Some("http://config/pods".to_owned());
        config.pods.documents = Some("/d".into());
        assert_eq!(shown(sources(&config, &[])), ["url http://config/pods", "documents /d"]);
    }
}
