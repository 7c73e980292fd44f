//! The ground on which all engines are measured: a disk with a journal, a registry on loopback with the corpus, Debian's containerd.
//!
//! The disk is a file on a loop device: without a journal, ext4 does not reuse fresh inodes, and every round is slower than the last.
//! It measures nothing; `engines.rs` and the other parts do, through what is public here.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::session::{BenchSession, program};

/// The size of the disk. Its file is sparse, and gives back what is removed (`discard`).
const DISK: u64 = 40 << 30;
/// How long containerd has until CRI answers.
const PATIENCE: Duration = Duration::from_secs(30);

/// The place of all runs.
pub(crate) struct Lab {
    pub(crate) session: BenchSession,
    /// Directory of the stores.
    pub(crate) disk: PathBuf,
    /// Host and port of the registry.
    pub(crate) registry: String,
    pub(crate) registry_pid: u32,
    /// The layout that the registry was filled from.
    pub(crate) corpus: PathBuf,
    /// imagelet's configuration: nothing of the machine's own.
    pub(crate) config: PathBuf,
}

impl Lab {
    /// Makes the disk, starts the registry and pushes the images.
    pub(crate) fn open(session: BenchSession, corpus: &Path, images: &[String]) -> anyhow::Result<Self> {
        let disk = session.work.join("disk");
        let file = session.work.join("disk.img");
        File::create(&file)?.set_len(DISK).context("make the disk's file")?;
        fs::create_dir(&disk)?;
        session.output(
            program("mkfs.ext4", &session.work).args(["-q", "-m", "0", "-E", "lazy_itable_init=0"]).arg(&file),
        )?;
        session.output(program("mount", &session.work).args(["-o", "loop,discard"]).args([&file, &disk]))?;
        let config = session.work.join("imagelet.yaml");
        fs::write(&config, "apiVersion: imagelet.dev/v1alpha1\nkind: ImageletConfiguration\n")?;
        let (registry_pid, registry) = start_registry(&session, &disk.join("registry"), false)?;
        let lab = Self { session, disk, registry, registry_pid, corpus: corpus.to_owned(), config };
        for image in images {
            lab.push(image)?;
        }
        Ok(lab)
    }

    /// The name by which engines pull an image of the corpus.
    pub(crate) fn reference(&self, image: &str) -> String {
        reference(&self.registry, image)
    }

    /// Puts an image of the corpus into the registry, blob by blob as it is.
    fn push(&self, image: &str) -> anyhow::Result<()> {
        self.push_as(image, &self.reference(image))
    }

    /// The same under a name of the caller's.
    pub(crate) fn push_as(&self, image: &str, reference: &str) -> anyhow::Result<()> {
        let mut copy = program("skopeo", &self.session.work);
        copy.args(["copy", "-q", "--preserve-digests", "--dest-tls-verify=false"]);
        copy.arg(format!("oci:{}:{image}", self.corpus.display())).arg(format!("docker://{reference}"));
        self.session.output(&mut copy).with_context(|| format!("push {image}")).map(drop)
    }

    /// Nothing of before is still being written, and the registry's blobs are in memory.
    pub(crate) fn settle(&self) -> anyhow::Result<()> {
        self.session.output(&mut program("sync", &self.session.work))?;
        let blobs = self.disk.join("registry/docker/registry/v2/blobs");
        each_file(&blobs, &mut |file| io::copy(&mut File::open(file)?, &mut io::sink()).map(drop))
            .with_context(|| format!("read {}", blobs.display()))
    }

    /// Seconds that it takes until everything on the disk is written.
    pub(crate) fn sync(&self) -> anyhow::Result<f64> {
        let start = Instant::now();
        self.session.output(program("sync", &self.session.work).arg("-f").arg(&self.disk))?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Removes a directory of the disk, with mounts below it.
    pub(crate) fn remove(&self, name: &str) -> anyhow::Result<()> {
        crate::session::remove(&self.disk.join(name))
    }
}

/// The name of an image of the corpus at a registry.
pub(crate) fn reference(registry: &str, image: &str) -> String {
    match image.strip_suffix("-zstd") {
        Some(name) => format!("{registry}/{name}:zstd"),
        None => format!("{registry}/{image}:latest"),
    }
}

/// Starts a registry over a directory, on a free port. Its log of requests is written to `requests.log` if `log` is set.
pub(crate) fn start_registry(session: &BenchSession, directory: &Path, log: bool) -> anyhow::Result<(u32, String)> {
    let file = session.work.join(if log { "registry-log.yml" } else { "registry.yml" });
    let text = format!(
        "version: 0.1\nlog: {{level: info, accesslog: {{disabled: {}}}}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\n\
         http: {{addr: '127.0.0.1:0', secret: loopback}}\n",
        !log,
        directory.display()
    );
    fs::write(&file, text)?;
    let mut serve = program("sh", &session.work);
    let out = if log { session.work.join("requests.log") } else { PathBuf::from("/dev/null") };
    serve.args(["-c", r#"exec docker-registry serve "$1" >"$2""#, "sh"]).args([&file, &out]);
    let (pid, line) = session.daemon(&mut serve, "listening on")?;
    let address = line.split("listening on ").nth(1).and_then(|rest| rest.split(['"', ' ', ',']).next());
    Ok((pid, address.context("the registry does not say where it listens")?.to_owned()))
}

/// Debian's containerd with CRI, over a directory of the disk.
pub(crate) struct Containerd {
    pub(crate) pid: u32,
    pub(crate) socket: PathBuf,
}

impl Containerd {
    pub(crate) fn start(lab: &Lab, probe: &dyn Fn(&Path) -> anyhow::Result<()>) -> anyhow::Result<Self> {
        let work = &lab.session.work;
        let socket = work.join("c.sock");
        if socket.as_os_str().len() > 90 {
            bail!("{} is too long for a socket", socket.display());
        }
        let hosts = work.join("certs.d").join(&lab.registry);
        fs::create_dir_all(&hosts)?;
        fs::write(hosts.join("hosts.toml"), format!("server = \"http://{}\"\n", lab.registry))?;
        let config = work.join("containerd.toml");
        fs::write(&config, containerd_config(work, &lab.disk, &lab.registry))?;
        let mut daemon = program("containerd", work);
        // Unpackers that happen to be installed must not change the baseline from machine to machine.
        daemon.env("CONTAINERD_DISABLE_PIGZ", "1").env("CONTAINERD_DISABLE_IGZIP", "1").arg("-c").arg(&config);
        let (pid, _) = lab.session.daemon(&mut daemon, "successfully booted")?;
        // CRI answers a moment later than the rest.
        let start = Instant::now();
        while let Err(error) = probe(&socket) {
            if start.elapsed() > PATIENCE {
                return Err(error.context("containerd's CRI does not answer"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(Self { pid, socket })
    }
}

fn containerd_config(work: &Path, disk: &Path, registry: &str) -> String {
    let (work, disk) = (work.display(), disk.display());
    format!(
        r#"version = 2
root = "{disk}/containerd"
state = "{work}/state"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.opt"]
[grpc]
  address = "{work}/c.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{registry}/pause:latest"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{work}/cni"
    conf_dir = "{work}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{work}/certs.d"
"#
    )
}

/// Calls for every file below a directory.
fn each_file(directory: &Path, call: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            each_file(&entry.path(), call)?;
        } else {
            call(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_have_names_at_the_registry() {
        assert_eq!(reference("127.0.0.1:5", "base"), "127.0.0.1:5/base:latest");
        assert_eq!(reference("127.0.0.1:5", "base-zstd"), "127.0.0.1:5/base:zstd");
    }
}
