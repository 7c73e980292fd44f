//! The arguments and the help text of `imagelet doctor`.

use clap::Args;

/// Check that this node can pull images and run pods
///
/// Prints one line per check, with a remedy for each problem: the container runtime and its socket, the pull engine, the sandbox
/// image, the pod network (CNI), the kernel, cgroups, disks, the kubelet's configuration, and the systemd units. With an image,
/// also its registry or mirror, the credentials, and the clock. Changes nothing. A check that cannot run here is skipped with the
/// reason, and is no failure. Run it as root: an ordinary user cannot reach the runtime or probe the kernel.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet doctor
  imagelet doctor registry.example/team/app:2     also registry, credentials and clock
  imagelet doctor -o json

Exit code: 0 if nothing must be fixed, also with warnings; otherwise 1.")]
pub(crate) struct Doctor {
    /// Image whose registry and credentials are checked
    #[arg(value_name = "IMAGE")]
    pub(crate) image: Option<String>,
}
