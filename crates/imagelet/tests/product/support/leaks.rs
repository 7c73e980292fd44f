//! Asserts that removed pods leave nothing behind. Reads the machine and not imagelet's answers: the runtime's lists,
//! mounts, cgroups, network namespaces, interfaces, rules, addresses, logs and directories.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::containerd::Containerd;
use super::node::Node;
use super::process::{run, tool};
use super::scratch::{NETWORK_RESULTS, Scratch};

/// The state of the machine before the first pod.
pub(crate) struct Baseline {
    mounts: BTreeSet<String>,
    directories: Vec<PathBuf>,
}

impl Baseline {
    pub(crate) fn of(scratch: &Scratch, containerd: &Containerd) -> Self {
        let directories = vec![scratch.path().to_path_buf(), containerd.scratch().path().to_path_buf()];
        Self { mounts: mounts(&directories), directories }
    }

    /// Everything that is left, in words.
    #[track_caller]
    pub(crate) fn left(&self, node: &Node) -> Vec<String> {
        let mut left = Vec::new();
        let mut add =
            |what: &str, found: Vec<String>| left.extend(found.into_iter().map(|one| format!("{what} {one}")));
        add("sandbox", node.sandboxes().into_iter().map(|(id, ready)| format!("{id}, ready: {ready}")).collect());
        add("container", node.ran().into_iter().map(|ran| format!("{ran:?}")).collect());
        add("containerd's container", lines(&node.ctr(&["containers", "list", "--quiet"])));
        add("containerd's task", lines(&node.ctr(&["tasks", "list", "--quiet"])));
        let scratch = node.containerd.scratch();
        add("mount", mounts(&self.directories).difference(&self.mounts).cloned().collect());
        let state = node.containerd.state();
        add("network namespace", entries(&state.join("io.containerd.grpc.v1.cri/netns")));
        add("state of a sandbox", entries(&state.join("io.containerd.grpc.v1.cri/sandboxes")));
        add("state of a container", entries(&state.join("io.containerd.grpc.v1.cri/containers")));
        add("interface", lines(&run(tool("ip").args(["-brief", "link", "show", "type", "veth"]))));
        let network = scratch.network();
        let noted = entries(&scratch.join("addresses").join(&network));
        add("address", noted.into_iter().filter(|name| name.starts_with("10.")).collect());
        let noted = entries(Path::new(NETWORK_RESULTS));
        add("note of the network", noted.into_iter().filter(|name| name.starts_with(&network)).collect());
        let rules = run(&mut tool("iptables-save"));
        add("rule", rules.lines().filter(|rule| rule.contains("10.88.")).map(str::to_owned).collect());
        for hierarchy in entries(Path::new("/sys/fs/cgroup")) {
            let path = Path::new("/sys/fs/cgroup").join(hierarchy).join(scratch.cgroup().trim_start_matches('/'));
            let below = fs::read_dir(&path).into_iter().flatten().filter_map(Result::ok);
            let below = below.filter(|entry| entry.path().is_dir());
            add("cgroup", below.map(|entry| entry.path().display().to_string()).collect());
        }
        let home = &node.scene.scratch;
        for directory in ["log/pods", "log/containers", "root/pods"] {
            let found = entries(&home.join(directory)).into_iter().map(|name| format!("{directory}/{name}"));
            add("directory entry", found.collect());
        }
        left
    }
}

/// The mount points below these directories.
fn mounts(below: &[PathBuf]) -> BTreeSet<String> {
    let all = fs::read_to_string("/proc/self/mountinfo").expect("read the mounts");
    let points = all.lines().filter_map(|line| line.split(' ').nth(4));
    // Layers of images, which containerd's erofs snapshotter keeps mounted as long as the image exists.
    let points = points.filter(|point| !point.contains("/io.containerd.snapshotter.v1.erofs/snapshots/"));
    // Those of imagelet, likewise.
    let points = points.filter(|point| fs::read_link(Path::new(point).with_file_name("fs")).is_err());
    points.filter(|point| below.iter().any(|dir| Path::new(point).starts_with(dir))).map(str::to_owned).collect()
}

/// Names in a directory; none where it is not there.
fn entries(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}
