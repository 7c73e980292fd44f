//! containerds to compare: of several versions, each with each of its snapshotters, alone or with imagelet's image service before it, as a
//! kubelet has it: images from imagelet's socket, pods from containerd's. `behind.rs` and `containers.rs` measure with them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use cri_api::{
    ContainerConfig, ContainerMetadata, ImageService, ImageSpec, Mount, NamespaceMode, PodSandboxConfig,
    PodSandboxMetadata, PullImageRequest, RuntimeService,
};
use cri_grpc::Endpoint;
use cri_grpc::client::{
    ClientOptions, RemoteImageService, RemoteRuntimeService, connect_image_service, connect_runtime_service,
};
use serde::Serialize;
use tokio::runtime::Runtime;

use crate::lab::Lab;
use crate::session::{self, program};

/// How long containerd has until nothing is left of an image.
const PATIENCE: Duration = Duration::from_secs(60);
/// The namespace of images and containers of CRI.
const NAMESPACE: &str = "k8s.io";

/// The programs of a containerd.
pub(crate) struct Programs {
    /// Version as printed by the program: `2.1.9`.
    pub(crate) version: String,
    /// Their directory; `None`: those of the machine.
    directory: Option<PathBuf>,
    has_erofs: bool,
}

impl Programs {
    /// Those of a directory: the root of an unpacked package, or its `usr/bin`.
    pub(crate) fn of(lab: &Lab, directory: Option<&Path>) -> anyhow::Result<Self> {
        // Of a relative path in PATH, containerd starts nothing.
        let absolute = directory.map(|named| fs::canonicalize(named).context("find it")).transpose()?;
        let directory = absolute.map(|named| {
            let below = named.join("usr/bin");
            if below.join("containerd").is_file() { below } else { named }
        });
        let mut programs = Self { version: String::new(), directory, has_erofs: false };
        let said = lab.session.output(programs.program(lab, "containerd").arg("--version"))?;
        programs.version = version_of(&said).with_context(|| format!("no version is in {said:?}"))?;
        let defaults = lab.session.output(programs.program(lab, "containerd").args(["config", "default"]))?;
        programs.has_erofs = defaults.contains("io.containerd.snapshotter.v1.erofs");
        Ok(programs)
    }

    /// Snapshotters of images that it can have.
    pub(crate) fn snapshotters(&self) -> &'static [&'static str] {
        if self.has_erofs { &["overlayfs", "erofs"] } else { &["overlayfs"] }
    }

    /// A program, which finds the shim and mkfs.erofs in its own directory.
    fn program(&self, lab: &Lab, name: &str) -> Command {
        let Some(directory) = &self.directory else { return program(name, &lab.session.work) };
        let mut command = program(directory.join(name), &lab.session.work);
        command.env("PATH", format!("{}:{}", directory.display(), session::PATH));
        command
    }

    fn is_second_generation(&self) -> bool {
        self.version.split('.').next().and_then(|major| major.parse::<u32>().ok()).is_some_and(|major| major > 1)
    }
}

/// Reads `containerd github.com/containerd/containerd/v2 2.1.9+ds1 2.1.9+ds1-5`.
fn version_of(said: &str) -> Option<String> {
    let word = said.split_ascii_whitespace().nth(2)?;
    let end = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
    Some(word[..end].to_owned()).filter(|version| version.contains('.'))
}

/// The program that pulls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Puller {
    Containerd,
    /// imagelet's engine, which puts directories into the snapshotter overlayfs.
    Directories,
    /// imagelet's engine, which puts EROFS files there.
    Files,
}

impl Puller {
    /// The pullers that differ with a snapshotter.
    pub(crate) fn all(snapshotter: &str) -> &'static [Self] {
        match snapshotter {
            "overlayfs" => &[Self::Containerd, Self::Directories, Self::Files],
            _ => &[Self::Containerd, Self::Directories],
        }
    }

    /// Name in tables.
    pub(crate) fn name(self, snapshotter: &str) -> &'static str {
        match (self, snapshotter) {
            (Self::Containerd, _) => "containerd",
            (Self::Directories, "overlayfs") => "imagelet, directories",
            (Self::Files, _) => "imagelet, EROFS files",
            (Self::Directories, _) => "imagelet",
        }
    }
}

/// imagelet's image service before a containerd.
struct Front {
    pid: u32,
    images: RemoteImageService,
}

/// A running containerd with a sandbox, in which containers are started.
pub(crate) struct RuntimeUnderTest {
    pub(crate) version: String,
    pub(crate) snapshotter: &'static str,
    pub(crate) puller: Puller,
    pub(crate) pid: u32,
    ctr: CtrCommand,
    images: RemoteImageService,
    front: Option<Front>,
    service: RemoteRuntimeService,
    sandbox: String,
    config: PodSandboxConfig,
    /// Content and snapshots of a containerd that has its sandbox and nothing else.
    baseline: BTreeSet<String>,
}

/// How `ctr` is called.
struct CtrCommand {
    program: PathBuf,
    socket: PathBuf,
    home: PathBuf,
}

impl RuntimeUnderTest {
    /// Starts a containerd over a directory of the disk, imagelet before it if it pulls, and a sandbox.
    pub(crate) fn start(
        lab: &Lab,
        tokio: &Runtime,
        programs: &Programs,
        snapshotter: &'static str,
        imagelet: &Path,
        puller: Puller,
    ) -> anyhow::Result<Self> {
        let name = format!(
            "{}{}{}",
            programs.version.replace('.', ""),
            &snapshotter[..1],
            match puller {
                Puller::Containerd => "",
                Puller::Directories => "i",
                Puller::Files => "f",
            }
        );
        let home = lab.session.work.join(&name);
        let socket = home.join("c.sock");
        ensure!(socket.as_os_str().len() < 90, "{} is too long for a socket", socket.display());
        fs::create_dir_all(home.join("certs.d").join(&lab.registry))?;
        let server = format!("server = \"http://{}\"\n", lab.registry);
        fs::write(home.join("certs.d").join(&lab.registry).join("hosts.toml"), server)?;
        let root = lab.disk.join(&name);
        let text = configuration(programs, &root, &home, &lab.registry, snapshotter);
        fs::write(home.join("config.toml"), text)?;
        let mut daemon = programs.program(lab, "containerd");
        // Unpackers that happen to be installed must not change the baseline from machine to machine.
        daemon.env("CONTAINERD_DISABLE_PIGZ", "1").env("CONTAINERD_DISABLE_IGZIP", "1");
        let (pid, _) = lab.session.daemon(daemon.arg("-c").arg(home.join("config.toml")), "successfully booted")?;
        lab.session.end_shims_at_end(&socket)?;

        let endpoint = format!("unix://{}", socket.display());
        let options = || ClientOptions { wait: Duration::from_secs(30), ..ClientOptions::default() };
        let at = Endpoint::parse(&endpoint).context("containerd's endpoint")?;
        let (images, service) = tokio.block_on(async {
            let images = connect_image_service(&at, options()).await?;
            let service = connect_runtime_service(&at, options()).await?;
            anyhow::Ok((images, service))
        })?;
        let ctr = CtrCommand {
            program: programs.directory.as_ref().map_or_else(|| "ctr".into(), |d| d.join("ctr")),
            socket,
            home: home.clone(),
        };
        let group = format!("imagelet-bench-{}-{name}", std::process::id());
        for entry in fs::read_dir("/sys/fs/cgroup").context("read the control groups")? {
            lab.session.remove_at_end(&entry?.path().join(&group))?;
        }
        lab.session.remove_at_end(&Path::new("/sys/fs/cgroup").join(&group))?;
        let mut config = PodSandboxConfig {
            metadata: PodSandboxMetadata {
                name: name.clone(),
                uid: name.clone(),
                namespace: "bench".into(),
                attempt: 0,
            },
            ..PodSandboxConfig::default()
        };
        config.linux.cgroup_parent = format!("/{group}");
        config.linux.security.namespaces.network = NamespaceMode::Node;
        let sandbox = tokio.block_on(async {
            images.pull_image(PullImageRequest::new(lab.reference("pause"))).await?;
            service.run_pod_sandbox(&config, "").await
        })?;
        let front = match puller {
            Puller::Containerd => None,
            Puller::Directories => Some(front(lab, tokio, (imagelet, "dir"), &home, &root, &endpoint)?),
            Puller::Files => Some(front(lab, tokio, (imagelet, "erofs"), &home, &root, &endpoint)?),
        };
        let mut runtime = Self {
            version: programs.version.clone(),
            snapshotter,
            puller,
            pid,
            ctr,
            images,
            front,
            service,
            sandbox,
            config,
            baseline: BTreeSet::new(),
        };
        runtime.baseline = runtime.content(lab)?;
        Ok(runtime)
    }

    /// The process of imagelet before it.
    pub(crate) fn imagelet(&self) -> Option<u32> {
        self.front.as_ref().map(|front| front.pid)
    }

    /// Pulls an image as a kubelet does.
    pub(crate) async fn pull(&self, reference: &str) -> anyhow::Result<String> {
        let images = self.front.as_ref().map_or(&self.images, |front| &front.images);
        images.pull_image(PullImageRequest::new(reference)).await.with_context(|| format!("pull {reference}"))
    }

    /// Creates a container of an image and starts its process. It contains the machine's busybox, for images without a shell.
    pub(crate) async fn start_container(&self, name: &str, image: &str, command: &[&str]) -> anyhow::Result<String> {
        let mut container = ContainerConfig {
            metadata: ContainerMetadata { name: name.to_owned(), attempt: 0 },
            image: ImageSpec::new(image),
            command: command.iter().map(|&word| word.to_owned()).collect(),
            mounts: vec![Mount {
                container_path: BUSYBOX.to_owned(),
                host_path: "/bin/busybox".to_owned(),
                readonly: true,
                ..Mount::default()
            }],
            ..ContainerConfig::default()
        };
        container.linux.security.namespaces.network = NamespaceMode::Node;
        let id = self.service.create_container(&self.sandbox, &container, &self.config).await?;
        self.service.start_container(&id).await?;
        Ok(id)
    }

    /// Runs a command in a container to its end, which must be a good one.
    pub(crate) async fn exec(&self, container: &str, command: &[&str]) -> anyhow::Result<()> {
        let command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
        let output = self.service.exec_sync(container, &command, PATIENCE).await?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.exit_code == 0, "{command:?} ended with {}: {said}", output.exit_code);
        Ok(())
    }

    /// Ends a container and takes it away.
    pub(crate) async fn remove_container(&self, id: &str) -> anyhow::Result<()> {
        self.service.stop_container(id, Duration::ZERO).await?;
        Ok(self.service.remove_container(id).await?)
    }

    /// Removes an image and waits until nothing of it is left.
    pub(crate) fn clear(&self, lab: &Lab, tokio: &Runtime, image: &str) -> anyhow::Result<()> {
        let images = self.front.as_ref().map_or(&self.images, |front| &front.images);
        tokio.block_on(images.remove_image(&ImageSpec::new(lab.reference(image))))?;
        let until = Instant::now() + PATIENCE;
        loop {
            let content = self.content(lab)?;
            if content == self.baseline {
                return Ok(());
            }
            let more: Vec<&String> = content.difference(&self.baseline).collect();
            ensure!(Instant::now() < until, "containerd {} keeps something of {image}: {more:?}", self.version);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Ends its sandbox, imagelet, and itself.
    pub(crate) fn end(self, lab: &Lab, tokio: &Runtime) -> anyhow::Result<()> {
        tokio.block_on(async {
            self.service.stop_pod_sandbox(&self.sandbox).await?;
            self.service.remove_pod_sandbox(&self.sandbox).await
        })?;
        if let Some(front) = &self.front {
            lab.session.end(front.pid)?;
        }
        lab.session.end(self.pid)
    }

    /// Digests of its content and names of its snapshots.
    fn content(&self, lab: &Lab) -> anyhow::Result<BTreeSet<String>> {
        let list = |args: &[&str]| {
            let mut ctr = program(&self.ctr.program, &self.ctr.home);
            ctr.arg("--address").arg(&self.ctr.socket).args(["--namespace", NAMESPACE]).args(args);
            lab.session.output(&mut ctr)
        };
        let blobs = list(&["content", "ls", "-q"])?;
        let snapshots = list(&["snapshots", "--snapshotter", self.snapshotter, "ls"])?;
        let snapshots = snapshots.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().next());
        Ok(blobs.lines().chain(snapshots).map(str::to_owned).collect())
    }
}

/// Path of the machine's busybox in containers.
pub(crate) const BUSYBOX: &str = "/busybox-of-imagelet-bench";

/// Starts imagelet before a containerd. A program without the flag of the engine passes pulls on, and is measured all the same.
fn front(
    lab: &Lab,
    tokio: &Runtime,
    (binary, layers): (&Path, &str),
    home: &Path,
    root: &Path,
    behind: &str,
) -> anyhow::Result<Front> {
    let help = lab.session.output(program(binary, home).args(["help", "settings"]))?;
    let endpoint = format!("unix://{}/i.sock", home.display());
    let mut serve = program("sh", home);
    serve.args(["-c", r#"exec "$@" >&2"#, "sh"]).arg(binary).arg("--config").arg(&lab.config);
    serve.arg("--root").arg(root.with_extension("imagelet")).args(["--progress", "none"]);
    serve.arg("--registry-config-path").arg(home.join("certs.d"));
    serve.args(["--image-endpoint", behind, "--runtime-endpoint", behind]);
    if help.contains("--pull-engine") {
        serve.args(["--pull-engine", "embedded"]);
    } else {
        crate::output::say("this imagelet has no --pull-engine: it passes every pull on to containerd");
    }
    if help.contains("--runtime-layers") {
        serve.args(["--runtime-layers", layers]);
    }
    let (pid, _) = lab.session.daemon(serve.args(["serve", "--listen", &endpoint]), "/i.sock")?;
    let at = Endpoint::parse(&endpoint).context("imagelet's endpoint")?;
    let options = ClientOptions { wait: Duration::from_secs(30), ..ClientOptions::default() };
    let images = tokio.block_on(connect_image_service(&at, options))?;
    Ok(Front { pid, images })
}

/// The configuration in the form of the generation: version 2 for 1.x, version 3 for 2.x.
fn configuration(programs: &Programs, root: &Path, home: &Path, registry: &str, snapshotter: &str) -> String {
    let (root, home) = (root.display(), home.display());
    let head = format!(
        "root = \"{root}\"\nstate = \"{home}/state\"\ndisabled_plugins = [\"io.containerd.snapshotter.v1.btrfs\", \
         \"io.containerd.snapshotter.v1.zfs\", \"io.containerd.snapshotter.v1.aufs\", \"io.containerd.snapshotter.v1.devmapper\", \
         \"io.containerd.internal.v1.opt\"]\n[grpc]\n  address = \"{home}/c.sock\"\n"
    );
    if !programs.is_second_generation() {
        return format!(
            r#"version = 2
{head}[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{registry}/pause:latest"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{home}/cni"
    conf_dir = "{home}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{home}/certs.d"
"#
        );
    }
    let erofs = if snapshotter == "erofs" {
        r#"[plugins."io.containerd.service.v1.diff-service"]
  default = ["erofs", "walking"]
[[plugins."io.containerd.transfer.v1.local".unpack_config]]
  platform = "linux"
  snapshotter = "erofs"
  differ = "erofs"
"#
    } else {
        ""
    };
    format!(
        r#"version = 3
{head}[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "{snapshotter}"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{registry}/pause:latest"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "{home}/certs.d"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dir = "{home}/cni"
    conf_dir = "{home}/cni"
{erofs}"#
    )
}

#[test]
fn versions_of_both_generations_are_read() {
    let said = "containerd github.com/containerd/containerd/v2 2.1.9+ds1 2.1.9+ds1-5\n";
    assert_eq!(version_of(said).as_deref(), Some("2.1.9"));
    assert_eq!(version_of("containerd github.com/containerd/containerd 1.6.20~ds1 1.6").as_deref(), Some("1.6.20"));
    assert_eq!(version_of("containerd unknown"), None);
}
