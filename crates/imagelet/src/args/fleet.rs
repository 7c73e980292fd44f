//! Arguments of `imagelet fleet`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::ValueParser;
use clap::{Args, Subcommand, ValueHint};

use super::creds::Creds;
use super::reach::ReachArgs;
use super::times::timeout;

/// Give the nodes of a cluster their images
#[derive(Debug, Args)]
pub(crate) struct Fleet {
    #[command(subcommand)]
    pub(crate) action: FleetAction,
}

impl Fleet {
    /// Returns true for the command that runs until a signal arrives.
    pub(crate) fn is_service(&self) -> bool {
        matches!(self.action, FleetAction::Controller(_))
    }

    /// Returns true for the command that pulls images.
    pub(crate) fn bakes(&self) -> bool {
        matches!(self.action, FleetAction::Bake(_))
    }

    /// Returns how registries are reached.
    pub(super) fn reach(&self) -> image_service::Reach {
        match &self.action {
            FleetAction::Bake(args) => args.reach.reach(),
            _ => image_service::Reach::default(),
        }
    }
}

/// Subcommands of `imagelet fleet`.
#[derive(Debug, Subcommand)]
pub(crate) enum FleetAction {
    Install(FleetInstall),
    Apply(FleetApply),
    Status(FleetStatusArgs),
    Watch(FleetWatch),
    Why(FleetWhy),
    /// Start no further nodes of a set
    ///
    /// Nodes that have started go on. Sets `spec.rollout.paused` of the set, or with --all `spec.paused` of the Fleet.
    #[command(after_help = "Examples:\n  imagelet fleet pause web\n  imagelet fleet pause --all")]
    Pause(FleetPause),
    /// Let further nodes of a set start again
    ///
    /// Ends a pause of the set, or with --all of the whole fleet; a set that is paused by itself stays paused then.
    #[command(after_help = "Examples:\n  imagelet fleet resume web\n  imagelet fleet resume --all")]
    Resume(FleetPause),
    Bake(FleetBake),
    Controller(FleetController),
    /// Print the manifests of the fleet: its kinds, rights, admission policies and workloads
    #[command(hide = true)]
    Manifests,
}

/// Install or upgrade a fleet in a cluster
///
/// Applies the kinds, the rights, the admission policies, the controller and the DaemonSet of this version on the server (server-side
/// apply), which are the objects of deploy/fleet. An older API server gets those that it takes, with a warning about the others.
///
/// The credentials are those of --kubeconfig, of $KUBECONFIG, or of ~/.kube/config, not those of the node in a configuration file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet fleet install --image registry.example/imagelet:0.3.0")]
pub(crate) struct FleetInstall {
    /// Image of imagelet in a registry that the nodes can pull from
    #[arg(long, value_name = "IMAGE", value_parser = super::remote::image)]
    pub(crate) image: String,
    /// Take over fields that another manager owns
    #[arg(long)]
    pub(crate) force_conflicts: bool,
}

/// Create or change ImageSets and the Fleet
///
/// Reads files, checks every field, and applies the objects on the server (server-side apply, as the manager imagelet-fleet). Nothing is
/// applied if a file has an error. A field that another manager owns is a conflict, which names the manager.
///
/// The credentials are those of --kubeconfig, of $KUBECONFIG, or of ~/.kube/config, not those of the node in a configuration file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet fleet apply -f web.yaml
  imagelet fleet apply -f sets/ --dry-run
  imagelet fleet apply -f web.yaml --force-conflicts")]
pub(crate) struct FleetApply {
    /// File or directory of files (*.yaml, *.yml, *.json), or URL; `-` is standard input; may be given again
    #[arg(long = "filename", short, value_name = "FILE", required = true, value_hint = ValueHint::AnyPath, num_args = 1..)]
    pub(crate) files: Vec<PathBuf>,
    /// Have the server check the objects, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Take over fields that another manager owns
    #[arg(long)]
    pub(crate) force_conflicts: bool,
}

/// Show the state of rollouts
///
/// Without a name, a table of all sets. With a name, the rollout of one set: nodes by state, conditions, digests, failures by cause,
/// and the nodes that have been in progress for the longest time.
///
/// The credentials are those of --kubeconfig, of $KUBECONFIG, or of ~/.kube/config, not those of the node in a configuration file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet fleet status
  imagelet fleet status web
  imagelet fleet status web -o jsonpath='{.nodes.ready}'")]
pub(crate) struct FleetStatusArgs {
    /// Name of a set
    #[arg(value_name = "SET")]
    pub(crate) set: Option<String>,
}

/// Follow a rollout until it ends
///
/// Shows the picture of `fleet status` again whenever something changes; if standard output is no terminal, one line for each change.
/// Without a name, one line for each set. Ends when every set is ready, or when the rollout of one failed.
///
/// Exit code: 0 if every node has every image; 1 if the rollout failed, or --timeout passed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet fleet watch web
  imagelet fleet watch --timeout 1h && echo ready")]
pub(crate) struct FleetWatch {
    /// Name of a set [default: all sets]
    #[arg(value_name = "SET")]
    pub(crate) set: Option<String>,
    /// Longest time to wait, for example 90s or 10m [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = timeout)]
    pub(crate) timeout: Option<Duration>,
}

/// Explain why a node has an image, or not
///
/// Which sets want the image there, whether its tag is resolved, whether the node may start, and what the node reported; then the answer
/// in one sentence, and the next step.
///
/// The credentials are those of --kubeconfig, of $KUBECONFIG, or of ~/.kube/config, not those of the node in a configuration file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet fleet why node-7 registry.example/web:2.1
  imagelet fleet why node-7 busybox -o json")]
pub(crate) struct FleetWhy {
    /// Name of the node
    #[arg(value_name = "NODE")]
    pub(crate) node: String,
    /// Image by name, as in a set
    #[arg(value_name = "IMAGE", value_parser = super::remote::image)]
    pub(crate) image: String,
}

/// The set, or all sets.
#[derive(Debug, Args)]
pub(crate) struct FleetPause {
    /// Name of a set
    #[arg(value_name = "SET", required_unless_present = "all", conflicts_with = "all")]
    pub(crate) set: Option<String>,
    /// All sets, by the Fleet
    #[arg(long)]
    pub(crate) all: bool,
}

/// Pull the images of sets into a store, for disks that nodes are made of
///
/// Needs no API server. The store of --root, or with -i that of a runtime, has every image of the sets then, pinned; the root has the
/// state of the node daemon. A node that starts on this disk, with the same sets in its cluster, reports everything as present and
/// fetches no layer. An image that cannot be pulled is named, and the others are kept. The setting --node-labels chooses the sets that
/// select such a node. Pull secrets of sets are in the cluster: the credentials are those of `imagelet pull`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet fleet bake --set web.yaml --root /mnt/image/var/lib/imagelet
  imagelet fleet bake --set sets/ --node-labels role=web --root ./root
  imagelet fleet bake --set web.yaml -i unix:///run/containerd/containerd.sock")]
pub(crate) struct FleetBake {
    /// File or directory of files (*.yaml, *.yml, *.json) with ImageSets, or URL; may be given again
    #[arg(long = "set", value_name = "FILE", required = true, value_hint = ValueHint::AnyPath, num_args = 1..)]
    pub(crate) files: Vec<PathBuf>,
    /// Credential for the registry. A variable is better: other users can read the command line
    #[arg(long, value_name = "USER:PASSWORD", env = "IMAGELET_CREDS", hide_env_values = true, value_parser = ValueParser::from(Creds::parse))]
    pub(crate) creds: Option<Creds>,
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
}

/// Run the controller of ImageSets
///
/// Resolves the tags of each ImageSet once, releases the nodes in waves, and summarises the reports of the nodes in the status of the
/// set. Creates no pods and copies no secrets. Run two or three replicas: one works, and another one continues if it ends.
///
/// The setting `kubeconfig` has the credentials; without it, the service account of the pod is used. Pull secrets are read in --namespace.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet fleet controller --kubeconfig ~/.kube/config --namespace imagelet-fleet
  kubectl apply -f deploy/fleet/install.yaml           run it in the cluster")]
pub(crate) struct FleetController {
    /// Namespace of the pull secrets and of the Lease [default: that of the credentials]
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Wait for the Lease before anything is written, so that one of several replicas works
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub(crate) leader_election: bool,
    /// Name of this replica in the Lease [default: the name of the machine and a random number]
    #[arg(long, value_name = "NAME")]
    pub(crate) identity: Option<String>,
}
