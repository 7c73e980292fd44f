//! The arguments of the commands about pods. See [`super`].

use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::config::{Config, Origin};

/// Run pods from manifests, with no Kubernetes
///
/// Keeps the pods of a directory of manifests (staticPodPath, --manifests) and of an address (staticPodURL) running on the
/// container runtime of this node, as a kubelet would: a manifest that comes is a pod that starts, one that changes a pod that
/// is replaced, one that goes a pod that ends. Containers go on when this process ends, and are found again by the next one.
/// Ends on SIGTERM or Ctrl-C; a second signal ends it on the spot.
///
/// With -f the pods of these files run in the foreground, and nothing else does: each change is one line. It ends when all of
/// them have, with 0 when all succeeded and 1 when one failed; Ctrl-C ends the pods. Either way they are gone afterwards.
/// Files may hold Secrets and ConfigMaps for the pods as well.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet run                                  the pods of /etc/imagelet/manifests
  imagelet run --manifests ./pods -r unix:///run/crio/crio.sock
  imagelet run -f job.yaml && echo done
  imagelet run --dry-run -f pod.yaml            whether it is valid, and every field that is not")]
pub(crate) struct Run {
    /// Directory of manifests, or one manifest, instead of staticPodPath; may be given again
    #[arg(long, value_name = "DIR", value_hint = ValueHint::AnyPath)]
    pub(crate) manifests: Vec<PathBuf>,
    /// Run the pods of this manifest in the foreground; `-` is standard input; may be given again
    #[arg(long = "filename", short, value_name = "FILE", value_hint = ValueHint::FilePath, num_args = 1.., conflicts_with = "manifests")]
    pub(crate) files: Vec<PathBuf>,
    /// Only list the pods that would be run, and say what is refused; no runtime is asked
    #[arg(long)]
    pub(crate) dry_run: bool,
}

impl Run {
    /// A directory that was given goes before the configured one.
    pub(crate) fn apply(&self, config: &mut Config) {
        if let [first, ..] = self.manifests.as_slice() {
            config.pods.manifests = Some(std::path::absolute(first).unwrap_or_else(|_| first.clone()));
            config.origins.insert("staticPodPath", Origin::Flag("manifests"));
        }
    }
}

/// Which pods are listed.
#[derive(Clone, Debug, Args)]
pub(crate) struct Scope {
    /// Only pods of this namespace
    #[arg(long, short, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Pods of all namespaces, which is what is listed unless -n says otherwise
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
}

/// List the pods of this node
///
/// Asks the process that keeps them (`imagelet run`) over its admin socket. READY, STATUS and RESTARTS are those of `kubectl get
/// pods`; -o wide adds addresses and images; -o json and yaml write them in Kubernetes' shape. Manifests that were refused
/// are told on stderr.
#[derive(Debug, Args)]
#[command(visible_alias = "ps")]
pub(crate) struct Pods {
    #[command(flatten)]
    pub(crate) scope: Scope,
    /// Only this pod: its name with or without the node behind it, namespace/name, or uid
    #[arg(value_name = "POD")]
    pub(crate) pods: Vec<String>,
    /// Write the list anew whenever it changes
    #[arg(long, short)]
    pub(crate) watch: bool,
}

/// Show everything about a pod: containers, conditions, volumes, events, and what its last sync wanted
#[derive(Debug, Args)]
pub(crate) struct Describe {
    /// Name with or without the node behind it, namespace/name, or uid
    #[arg(value_name = "POD", required = true)]
    pub(crate) pods: Vec<String>,
    /// Its namespace
    #[arg(long, short, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
}

/// Show what happened to pods: pulls, starts, probes that failed, ends
///
/// The process that keeps pods (`imagelet run`) remembers the last 2,000 events of its life.
#[derive(Debug, Args)]
pub(crate) struct Events {
    #[command(flatten)]
    pub(crate) scope: Scope,
    /// Only of this pod: its name with or without the node behind it, namespace/name, or uid
    #[arg(value_name = "POD")]
    pub(crate) pod: Option<String>,
    /// Go on with what happens
    #[arg(long, short)]
    pub(crate) watch: bool,
}
