//! Arguments of `imagelet fleet`.

use clap::{Args, Subcommand};

/// Give the nodes of a cluster their images
#[derive(Debug, Args)]
pub(crate) struct Fleet {
    #[command(subcommand)]
    pub(crate) action: FleetAction,
}

/// Subcommands of `imagelet fleet`.
#[derive(Debug, Subcommand)]
pub(crate) enum FleetAction {
    Controller(FleetController),
    /// Print the manifests of the fleet: its kinds, rights, admission policies and workloads
    #[command(hide = true)]
    Manifests,
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
