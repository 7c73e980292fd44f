//! The arguments of the commands about pods. See [`super`].

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::Recursive;
use super::listen::ListenArg;

/// Run pods from manifests, without Kubernetes
///
/// Runs the pods of a directory of manifests (staticPodPath, --manifests) and of a URL (staticPodURL) on the node's container
/// runtime, as a kubelet does with static pods: a pod starts when its manifest appears, is replaced when it changes, and ends
/// when it is removed. Containers continue to run when this process ends, and the next process takes them over.
/// SIGTERM or Ctrl-C ends it, a second signal at once. SIGHUP reloads the configuration: see `imagelet config print`.
///
/// With --listen it also serves images on a CRI socket, as `imagelet serve` does, from the same store and with the same
/// collection.
///
/// With -f it runs only the pods of these files in the foreground, and prints a line for each change. It ends when all pods have
/// ended, with exit code 0 if all succeeded and 1 if one failed; Ctrl-C ends the pods. The pods are removed afterwards. The
/// files may contain Secrets and ConfigMaps for the pods.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet run                                  the pods of /etc/imagelet/manifests
  imagelet run --manifests ./pods -r unix:///run/crio/crio.sock
  imagelet run --kubeconfig kubelet.conf        a node of a Kubernetes cluster
  imagelet run -f job.yaml && echo done
  imagelet run --dry-run -f pod.yaml            validates it, and lists every field that is wrong")]
pub(crate) struct Run {
    /// Directory of manifests, or one manifest, instead of staticPodPath; may be given again
    #[arg(long, value_name = "DIR", value_hint = ValueHint::AnyPath)]
    pub(crate) manifests: Vec<PathBuf>,
    /// Run the pods of this manifest, directory of manifests (*.yaml, *.yml, *.json) or URL in the foreground; `-` is standard
    /// input; may be given again
    #[arg(long = "filename", short, value_name = "FILE", value_hint = ValueHint::AnyPath, num_args = 1.., conflicts_with = "manifests")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) below: Recursive,
    #[command(flatten)]
    _listen: ListenArg,
    /// Only list the pods that would run, and those that are refused; needs no runtime
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Selection of pods by namespace.
#[derive(Clone, Debug, Args)]
pub(crate) struct Scope {
    /// Only pods of this namespace
    #[arg(long, short, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Pods of all namespaces, the default without -n
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
}

/// List the pods of this node
///
/// Asks the agent (`imagelet run`) over its admin socket. READY, STATUS and RESTARTS are those of `kubectl get
/// pods`; -o wide adds addresses and images; -o json and yaml write them as Kubernetes objects. Manifests that were refused
/// are reported on stderr.
#[derive(Debug, Args)]
#[command(visible_alias = "ps")]
pub(crate) struct Pods {
    #[command(flatten)]
    pub(crate) scope: Scope,
    /// Only this pod: its name with or without the node behind it, namespace/name, or uid
    #[arg(value_name = "POD")]
    pub(crate) pods: Vec<String>,
    /// Print the list again whenever it changes
    #[arg(long, short)]
    pub(crate) watch: bool,
}

/// Show a pod: containers, conditions, volumes, events, last sync
#[derive(Debug, Args)]
pub(crate) struct Describe {
    /// Name with or without the node behind it, namespace/name, or uid
    #[arg(value_name = "POD", required = true)]
    pub(crate) pods: Vec<String>,
    /// Namespace of the pod
    #[arg(long, short, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
}

/// Show events of pods: pulls, starts, failed probes, ends
///
/// The agent (`imagelet run`) remembers its last 2,000 events.
#[derive(Debug, Args)]
pub(crate) struct Events {
    #[command(flatten)]
    pub(crate) scope: Scope,
    /// Only of this pod: its name with or without the node behind it, namespace/name, or uid
    #[arg(value_name = "POD")]
    pub(crate) pod: Option<String>,
    /// Follow new events
    #[arg(long, short)]
    pub(crate) watch: bool,
}
