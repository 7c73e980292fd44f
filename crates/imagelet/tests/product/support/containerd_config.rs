//! The containerd under test: its programs, its version, and the configuration of its generation. `CONTAINERD=DIR` names another one than the
//! machine's (the root of an unpacked package, or the directory of its programs: `scripts/containerd-packages.sh` makes such), and
//! `CONTAINERD_SNAPSHOTTER`, as for nerdctl and ctr, the snapshotter of its images. Starts no daemon.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::process::{run, tool};

/// Plugins of 1.x and 2.x that no test uses, or that would share something with the containerd of another test.
const UNUSED: [&str; 5] = [
    "snapshotter.v1.btrfs",
    "snapshotter.v1.zfs",
    "snapshotter.v1.aufs",
    "snapshotter.v1.devmapper",
    "internal.v1.opt",
];

/// The parts of a configuration that differ from test to test.
pub(crate) struct Configured<'a> {
    pub(crate) root: &'a Path,
    /// Directory of everything else: state, network.
    pub(crate) home: &'a Path,
    pub(crate) socket: &'a Path,
    pub(crate) certs: &'a Path,
    pub(crate) sandbox_image: &'a str,
    pub(crate) snapshotter: &'a str,
}

/// The directory of the programs of `CONTAINERD=DIR`; `None`: those of the machine.
fn directory() -> Option<PathBuf> {
    let named = PathBuf::from(std::env::var_os("CONTAINERD").filter(|named| !named.is_empty())?);
    let named = std::path::absolute(&named).unwrap_or(named);
    let below = named.join("usr/bin");
    let found = [below, named.clone()].into_iter().find(|directory| directory.join("containerd").is_file());
    Some(found.unwrap_or_else(|| panic!("CONTAINERD={}: no containerd is there", named.display())))
}

/// A program of the containerd under test: `containerd`, `ctr`. It finds the shim and mkfs.erofs in its own directory.
#[track_caller]
pub(crate) fn program(name: &str) -> Command {
    let Some(directory) = directory() else { return tool(name) };
    let path = std::env::var("PATH").unwrap_or_default();
    // A program that becomes the other one: started programs are known by the name of a tool, in whatever directory.
    let mut command = tool("env");
    command.arg(format!("PATH={}:{path}", directory.display())).arg(directory.join(name));
    command
}

/// Major and minor version of the containerd under test.
#[track_caller]
pub(crate) fn version() -> (u32, u32) {
    static VERSION: OnceLock<(u32, u32)> = OnceLock::new();
    *VERSION.get_or_init(|| {
        let said = run(program("containerd").arg("--version"));
        version_of(&said).unwrap_or_else(|| panic!("no version is in {said:?}"))
    })
}

/// Reads `containerd github.com/containerd/containerd/v2 2.1.9+ds1 2.1.9+ds1-5`.
fn version_of(said: &str) -> Option<(u32, u32)> {
    let mut numbers = said.split_ascii_whitespace().nth(2)?.trim_start_matches('v').split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// `containerd 2.1`.
#[track_caller]
pub(crate) fn name() -> String {
    let (major, minor) = version();
    format!("containerd {major}.{minor}")
}

/// The snapshotter of images that a test does not choose itself.
pub(crate) fn snapshotter() -> String {
    let named = std::env::var("CONTAINERD_SNAPSHOTTER").unwrap_or_default();
    if named.is_empty() { "overlayfs".to_owned() } else { named }
}

/// The configuration in the form of the generation: version 2 for 1.x, version 3 for 2.x.
#[track_caller]
pub(crate) fn configuration(of: &Configured<'_>) -> String {
    let unused = UNUSED.map(|plugin| format!("\"io.containerd.{plugin}\"")).join(", ");
    let (root, home, socket, certs) = (of.root.display(), of.home.display(), of.socket.display(), of.certs.display());
    let (sandbox_image, snapshotter) = (of.sandbox_image, of.snapshotter);
    let head = |version| {
        format!(
            "version = {version}\nroot = \"{root}\"\nstate = \"{home}/state\"\ndisabled_plugins = [{unused}]\n[grpc]\n  address = \"{socket}\"\n"
        )
    };
    if version().0 < 2 {
        return head(2)
            + &format!(
                r#"[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{sandbox_image}"
  netns_mounts_under_state_dir = true
  restrict_oom_score_adj = true
  stats_collect_period = 1
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{home}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
    default_runtime_name = "runc"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "/usr/sbin/runc"
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{certs}"
"#
            );
    }
    // NRI listens at one place of the machine.
    let mut text = head(3)
        + &format!(
            r#"[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "{snapshotter}"
  stats_collect_period = 1
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{sandbox_image}"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "{certs}"
[plugins."io.containerd.cri.v1.runtime"]
  netns_mounts_under_state_dir = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{home}/cni"
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = "/usr/sbin/runc"
      SystemdCgroup = false
"#
        );
    if snapshotter == "erofs" {
        text += r#"[plugins."io.containerd.service.v1.diff-service"]
  default = ["erofs", "walking"]
[[plugins."io.containerd.transfer.v1.local".unpack_config]]
  platform = "linux"
  snapshotter = "erofs"
  differ = "erofs"
"#;
    }
    text
}

#[test]
fn versions_of_both_generations_are_read() {
    let said = "containerd github.com/containerd/containerd/v2 2.1.9+ds1 2.1.9+ds1-5\n";
    assert_eq!(version_of(said), Some((2, 1)));
    assert_eq!(version_of("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u2"), Some((1, 6)));
    assert_eq!(version_of("containerd v1.7.24"), None);
}
