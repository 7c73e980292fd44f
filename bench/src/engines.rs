//! The engines: how each pulls one image into an empty store, and how its store becomes empty again.
//!
//! An engine that is a daemon is measured from outside: CPU and memory of the daemon, and the client's. Which engines run, and in
//! which order, is not known here.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::lab::{Containerd, Lab};
use crate::measure::{Took, measured};
use crate::proc;
use crate::session::program;

/// Form of a layer on the disk, as imagelet makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LayerFormat {
    Dir,
    Erofs,
}

impl LayerFormat {
    pub(crate) const ALL: [Self; 2] = [Self::Dir, Self::Erofs];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dir => "dir",
            Self::Erofs => "erofs",
        }
    }
}

/// A way to bring an image onto the disk.
pub(crate) enum PullEngine {
    /// This project's own, one process for a pull.
    Imagelet { binary: PathBuf, durable: bool, format: LayerFormat },
    /// containerd pulls, asked over CRI; the client is imagelet, which only asks.
    ContainerdCri { client: PathBuf },
    /// `ctr` fetches, containerd unpacks.
    ContainerdCtr,
    /// podman as root, on overlayfs.
    Podman,
    /// skopeo fetches into a layout, umoci unpacks that. Debian's umoci knows no zstd.
    SkopeoUmoci,
}

impl PullEngine {
    /// Returns the engine of a name, from the available programs.
    pub(crate) fn named(name: &str, imagelet: &Path, binaries: &[(String, PathBuf)]) -> Option<Self> {
        let own = |durable, format| Self::Imagelet { binary: imagelet.to_owned(), durable, format };
        Some(match name {
            "imagelet" => own(false, LayerFormat::Dir),
            "imagelet-durable" => own(true, LayerFormat::Dir),
            "imagelet-erofs" => own(false, LayerFormat::Erofs),
            "imagelet-erofs-durable" => own(true, LayerFormat::Erofs),
            "containerd-cri" => Self::ContainerdCri { client: imagelet.to_owned() },
            "containerd-ctr" => Self::ContainerdCtr,
            "podman" => Self::Podman,
            "skopeo+umoci" => Self::SkopeoUmoci,
            _ => {
                let binary = binaries.iter().find(|(n, _)| n == name)?.1.clone();
                Self::Imagelet { binary, durable: false, format: LayerFormat::Dir }
            }
        })
    }

    /// Returns true for the engines that run in every round: the two that the budgets compare, and our own.
    pub(crate) fn always(&self) -> bool {
        matches!(self, Self::Imagelet { .. } | Self::ContainerdCri { .. })
    }

    pub(crate) fn needs_containerd(&self) -> bool {
        matches!(self, Self::ContainerdCri { .. } | Self::ContainerdCtr)
    }

    pub(crate) fn can_pull(&self, image: &str) -> bool {
        !(matches!(self, Self::SkopeoUmoci) && image.ends_with("-zstd"))
    }

    /// Empties its store.
    pub(crate) fn empty(&self, lab: &Lab, containerd: Option<&Containerd>) -> anyhow::Result<()> {
        match self {
            Self::Imagelet { .. } => lab.remove("imagelet"),
            Self::ContainerdCri { .. } => empty_containerd(lab, containerd, "k8s.io"),
            Self::ContainerdCtr => empty_containerd(lab, containerd, "default"),
            Self::Podman => lab.remove("podman"),
            Self::SkopeoUmoci => lab.remove("umoci"),
        }
    }

    /// Pulls an image into the empty store.
    pub(crate) fn pull(&self, lab: &Lab, containerd: Option<&Containerd>, image: &str) -> anyhow::Result<Took> {
        let name = lab.reference(image);
        let alone = |command: &Command| measured(&lab.session, command, None).map(|done| done.took);
        match self {
            Self::Imagelet { binary, durable, format } => {
                alone(imagelet(lab, binary, *durable, "pull").args(["--layer-format", format.name()]).arg(name))
            }
            Self::ContainerdCri { client } => {
                with_daemon(containerd, false, || alone(&cri_pull(lab, containerd, client, &name)))
            }
            Self::ContainerdCtr => {
                let mut pull = ctr(lab, containerd, "default");
                pull.args(["images", "pull", "--plain-http", &name]);
                with_daemon(containerd, true, || alone(&pull))
            }
            Self::Podman => {
                let root = lab.disk.join("podman");
                std::fs::create_dir_all(root.join("tmp"))?;
                let mut pull = program("podman", &lab.session.work);
                // Its locks are in this directory as well, and not in the memory of the machine.
                let containers = lab.session.work.join("containers.conf");
                std::fs::write(&containers, "[engine]\nlock_type = \"file\"\n")?;
                pull.env("CONTAINERS_CONF", &containers).env("TMPDIR", root.join("tmp")).args([
                    "--storage-driver",
                    "overlay",
                    "--cgroup-manager",
                    "cgroupfs",
                ]);
                pull.arg("--root").arg(root.join("root")).arg("--runroot").arg(lab.session.work.join("podman"));
                pull.arg("--tmpdir").arg(lab.session.work.join("podman-tmp"));
                alone(pull.args(["pull", "-q", "--tls-verify=false", &name]))
            }
            Self::SkopeoUmoci => {
                let root = lab.disk.join("umoci");
                std::fs::create_dir_all(&root)?;
                let layout = format!("{}/layout:image", root.display());
                let mut copy = program("skopeo", &lab.session.work);
                copy.env("TMPDIR", &root).args(["copy", "-q", "--src-tls-verify=false"]);
                copy.arg(format!("docker://{name}")).arg(format!("oci:{layout}"));
                let mut unpack = program("umoci", &lab.session.work);
                unpack.args(["unpack", "--image", &layout]).arg(root.join("bundle"));
                Ok(alone(&copy)?.then(alone(&unpack)?))
            }
        }
    }

    /// Removes what containerd pulled over CRI; the seconds until nothing of it is left.
    pub(crate) fn remove(&self, lab: &Lab, containerd: &Containerd) -> anyhow::Result<f64> {
        let mut list = ctr(lab, Some(containerd), "k8s.io");
        let images = lab.session.output(list.args(["images", "ls", "-q"]))?;
        let mut remove = ctr(lab, Some(containerd), "k8s.io");
        remove.args(["images", "rm", "--sync"]).args(images.lines());
        Ok(measured(&lab.session, &remove, None)?.took.wall)
    }
}

/// A command of imagelet on the embedded store of the disk.
pub(crate) fn imagelet(lab: &Lab, binary: &Path, durable: bool, command: &str) -> Command {
    let mut pull = program(binary, &lab.session.work);
    pull.arg("--config").arg(&lab.config).arg("--root").arg(lab.disk.join("imagelet"));
    pull.args(["--durability", if durable { "full" } else { "relaxed" }, "--progress", "none", "-q", command]);
    pull
}

/// Returns a pull over CRI. The client's own records are in memory, so that it adds only the call to containerd's time.
fn cri_pull(lab: &Lab, containerd: Option<&Containerd>, client: &Path, name: &str) -> Command {
    let mut pull = cri(lab, client, &containerd.map(|c| c.socket.clone()).unwrap_or_default());
    pull.args(["pull", name]);
    pull
}

/// imagelet as a client of a CRI socket.
pub(crate) fn cri(lab: &Lab, client: &Path, socket: &Path) -> Command {
    let mut command = program(client, &lab.session.work);
    command.arg("--config").arg(&lab.config).arg("--root").arg(lab.session.memory.join("client"));
    command.args(["--progress", "none", "-q", "--image-endpoint"]).arg(format!("unix://{}", socket.display()));
    command
}

fn ctr(lab: &Lab, containerd: Option<&Containerd>, namespace: &str) -> Command {
    let mut command = program("ctr", &lab.session.work);
    command.arg("--address").arg(containerd.map(|c| c.socket.as_path()).unwrap_or(Path::new("")));
    command.args(["--namespace", namespace]);
    command
}

/// Runs a client, and adds the CPU time of the daemon. The peak is the daemon's, or the greater one where both pull.
fn with_daemon(
    containerd: Option<&Containerd>,
    both_pull: bool,
    run: impl FnOnce() -> anyhow::Result<Took>,
) -> anyhow::Result<Took> {
    let pid = containerd.map_or(0, |c| c.pid);
    proc::forget_peak(pid)?;
    let before = proc::cpu_seconds(pid)?;
    let client = run()?;
    let peak = proc::peak_mib(pid)?;
    Ok(Took {
        wall: client.wall,
        cpu: client.cpu + proc::cpu_seconds(pid)? - before,
        peak: if both_pull { peak.max(client.peak) } else { peak },
    })
}

/// Removes all images of a namespace and waits until nothing of them is left.
fn empty_containerd(lab: &Lab, containerd: Option<&Containerd>, namespace: &str) -> anyhow::Result<()> {
    let list = |what: &[&str]| lab.session.output(ctr(lab, containerd, namespace).args(what));
    let images = list(&["images", "ls", "-q"])?;
    if !images.is_empty() {
        lab.session.output(ctr(lab, containerd, namespace).args(["images", "rm", "--sync"]).args(images.lines()))?;
    }
    let left =
        list(&["content", "ls", "-q"])? + list(&["snapshots", "ls"])?.lines().skip(1).collect::<String>().as_str();
    anyhow::ensure!(left.is_empty(), "containerd keeps something of its images: {left}");
    Ok(())
}
