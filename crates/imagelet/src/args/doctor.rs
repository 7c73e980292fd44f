//! The arguments and the help text of `imagelet doctor`.

use clap::Args;

/// Check that this node can pull images and run pods
///
/// Prints one line per check, with the remedy for whatever is wrong: the container runtime and its socket, the engine that pulls
/// for it, the sandbox image, the pod network (CNI), the kernel, cgroups, disks, the kubelet's configuration, and the systemd
/// units. With an image, also its registry or mirror, the credentials of a pull, and the clock. Changes nothing. A check that
/// cannot run here says why, and counts as no failure. Run it as root: an ordinary user cannot ask the runtime or the kernel.
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
