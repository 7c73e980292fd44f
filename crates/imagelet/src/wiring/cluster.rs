//! Builds a node of a cluster from the configuration: the client, and the parts that keep the Node up to date. Holds no rule of its own.
//! Called by `run`.

use std::sync::Arc;

use agent::collection::Collection;
use agent::node::{Node, Reading};
use async_trait::async_trait;
use cluster::ClusterClient;
use cluster::events::{ApiRecorder, EventWriter};
use cluster::identity::{IdentityFiles, Rotation, join};
use cluster::node::{
    Disk, Machine, NodeIdentity, NodeKeeper, NodeOptions, Observe, Observed, OwnNode, RuntimeReport, instance,
};
use cluster::retry::system_random;
use cri_api::RuntimeService;
use image_manager::WallClock;
use image_manager::gc::{Signal, Thresholds};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::config::{Config, eviction};
use crate::exit::{Code, Failure, Outcome, chain};

/// The version that a Node reports as its kubelet's: the Kubernetes version that this program follows, and its own.
const KUBELET_VERSION: &str = concat!("v1.36.0+imagelet.", env!("CARGO_PKG_VERSION"));

/// Directory of the node's files below the root.
pub(super) const DIRECTORY: &str = "cluster";

/// Returns true if the node is to belong to a cluster.
pub(super) fn is_wanted(config: &Config) -> bool {
    config.cluster.kubeconfig.is_some() || config.cluster.bootstrap_kubeconfig.is_some()
}

/// Returns the file system of pods, on which evictions keep some space free.
pub(super) fn disk(thresholds: &Thresholds, capacity: u64) -> Disk {
    let free = thresholds.iter().find(|(signal, _)| *signal == Signal::NodeFsAvailable);
    Disk { capacity, kept_free: free.map_or(0, |(_, amount)| amount.of(capacity)) }
}

/// The cluster of a node, before the node exists.
pub(crate) struct Cluster {
    pub(crate) client: ClusterClient,
    /// This node as the server has it, once it is registered.
    pub(super) own: OwnNode,
    events: ApiRecorder,
    /// Renews the certificate of a node that joined by itself.
    rotation: Option<Rotation>,
}

/// Opens the cluster of this node; `None` if it belongs to none.
pub(crate) async fn open(app: &App) -> Outcome<Option<Cluster>> {
    let (wanted, directory) = (&app.config.cluster, app.config.root.join(DIRECTORY));
    let kubeconfig = match (&wanted.kubeconfig, &wanted.bootstrap_kubeconfig) {
        (Some(kubeconfig), _) => kubeconfig.clone(),
        (None, Some(_)) => directory.join("kubeconfig"),
        (None, None) => return Ok(None),
    };
    let clock: WallClock = Arc::new(jiff::Timestamp::now);
    let events = ApiRecorder::new(Arc::clone(&clock));
    let Some(bootstrap) = wanted.bootstrap_kubeconfig.clone() else {
        let client = ClusterClient::open(&kubeconfig).await?;
        return Ok(Some(Cluster { client, own: OwnNode::default(), events, rotation: None }));
    };
    let (node, random) = (app.config.pods.node_name(), system_random());
    let files = IdentityFiles { directory: directory.join("pki"), kubeconfig };
    let joined = app.stop.run_until_cancelled(join(&files, &bootstrap, &node, &clock, &random)).await;
    let ours = joined.ok_or_else(|| Failure::new(app.signals.code(), "ended by a signal"))??;
    let client = ClusterClient::open(&files.kubeconfig).await?;
    let rotation = ours.then(|| Rotation { files, bootstrap, node, client: client.clone(), clock, random });
    Ok(Some(Cluster { client, own: OwnNode::default(), events, rotation }))
}

/// The parts that run next to a node of a cluster.
pub(crate) struct ClusterNode {
    client: ClusterClient,
    keeper: NodeKeeper,
    writer: EventWriter,
    rotation: Option<Rotation>,
}

impl Cluster {
    /// Sends the events of a node to the API server as well.
    pub(crate) fn records(&self, reading: &mut Reading) {
        reading.record_also(Arc::new(self.events.clone()));
    }

    /// Creates the parts that run next to `node`.
    pub(crate) async fn node(self, app: &App, node: &Node) -> Outcome<ClusterNode> {
        let config = app.config.clone();
        let made = tokio::task::spawn_blocking(move || options(&config)).await;
        let options = made.map_err(|_| Failure::failed("read the facts of the node: the reader panicked"))??;
        let observer = Observer {
            runtime: Arc::clone(&node.runtime),
            collection: Arc::clone(&node.collection),
            thresholds: eviction::thresholds(&app.config.eviction),
        };
        let (name, random) = (options.identity.name.clone(), Arc::clone(&options.random));
        let writer = EventWriter::new(self.client.clone(), self.events, name, random);
        let keeper = NodeKeeper::new(self.client.clone(), options, self.own, Arc::new(observer), node.events());
        Ok(ClusterNode { client: self.client, keeper, writer, rotation: self.rotation })
    }
}

impl ClusterNode {
    /// Keeps the node in its cluster until `stop`. If another process is the node of this name, everything ends: the two would compete for
    /// its pods.
    pub(crate) async fn keep(&self, stop: &CancellationToken) -> Outcome {
        let node = async {
            let ended = self.keeper.keep(stop).await;
            if ended.is_err() {
                stop.cancel();
            }
            ended
        };
        let rotation = async {
            if let Some(rotation) = &self.rotation {
                rotation.run(stop).await;
            }
        };
        let (ended, (), (), ()) = tokio::join!(node, self.writer.run(stop), rotation, self.client.follow_files(stop));
        Ok(ended?)
    }
}

/// Returns how the node registers. Blocks while it reads small files.
fn options(config: &Config) -> Outcome<NodeOptions> {
    let machine = Machine::read();
    let name = config.pods.node_name();
    let ips = &config.pods.node_ips;
    let identity = NodeIdentity {
        hostname: name.clone(),
        name,
        addresses: if ips.is_empty() { agent::node::machine::addresses() } else { ips.clone() },
        version: KUBELET_VERSION.to_owned(),
        port: config.cluster.port,
        max_pods: u64::try_from(config.max_pods).unwrap_or_default(),
    };
    let instance = instance(&config.root.join(DIRECTORY), &machine.machine_id);
    let instance = instance.map_err(|error| Failure::new(Code::Failed, chain(&error)))?;
    let wanted = &config.cluster;
    Ok(NodeOptions {
        labels: wanted.labels.clone(),
        taints: wanted.taints.clone(),
        provider_id: Some(wanted.provider_id.clone()).filter(|id| !id.is_empty()),
        transition: config.eviction.transition,
        ..NodeOptions::new(identity, machine, instance, Arc::new(jiff::Timestamp::now))
    })
}

/// Observes the runtime, its images and their file system.
struct Observer {
    runtime: Arc<dyn RuntimeService>,
    collection: Arc<Collection>,
    thresholds: Thresholds,
}

#[async_trait]
impl Observe for Observer {
    async fn observe(&self) -> Observed {
        let (version, status, images) =
            tokio::join!(self.runtime.version(), self.runtime.status(false), self.collection.node_status());
        let version = version.map(|v| format!("{}://{}", v.runtime_name, v.runtime_version)).ok();
        let mut seen = Observed {
            runtime: RuntimeReport { version, status: Some(status.map_err(|error| error.message().to_owned())) },
            ..Observed::default()
        };
        match images {
            Ok(status) => {
                let pressure = status.conditions.iter().find(|condition| condition.kind == "DiskPressure");
                seen.disk_pressure = pressure.and_then(|condition| match condition.status {
                    "True" => Some(true),
                    "False" => Some(false),
                    _ => None,
                });
                let fs = status.node_fs.as_ref().unwrap_or(&status.image_fs);
                seen.disk = Some(disk(&self.thresholds, fs.capacity_bytes));
                seen.images = Some(status.images.as_slice().to_vec());
            }
            Err(error) => tracing::warn!(error = chain(&error), "the images of this node are not known"),
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;

    #[test]
    fn a_node_registers_as_configured() {
        let root = tempfile::tempdir().expect("a directory");
        let mut config = Config::defaults(&Environment::default());
        config.root = root.path().to_owned();
        config.pods.node_name = Some("edge-1".to_owned());
        config.pods.node_ips = vec!["192.0.2.7".parse().expect("an address")];
        config.cluster.labels = vec!["rack=7".parse().expect("a label")];
        let made = options(&config).expect("made");
        assert_eq!((&*made.identity.name, &*made.identity.hostname), ("edge-1", "edge-1"));
        assert_eq!(made.identity.addresses, config.pods.node_ips);
        assert_eq!((made.identity.max_pods, made.provider_id), (110, None));
        assert_eq!(made.labels, config.cluster.labels);
        let taints: Vec<String> = made.taints.iter().map(ToString::to_string).collect();
        assert_eq!(taints, [cluster::node::DEFAULT_TAINT], "not every pod can run here");
        assert_eq!(options(&config).expect("made").instance, made.instance);
    }
}
