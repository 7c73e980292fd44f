//! containerd with its CRI plugin, Debian's or the one of `CONTAINERD=DIR`, in directories of its own, and `ctr` to inspect it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::containerd_config::{self, Configured, configuration, program};
use super::disk::share;
use super::images::Blob;
use super::network::write_pod_network;
use super::process::{Daemon, eventually, need_root, run, signal, tool};
use super::scratch::Scratch;

/// A running containerd.
pub(crate) struct Containerd {
    daemon: Daemon,
    config: PathBuf,
    socket: PathBuf,
    certs: PathBuf,
    // Last: its mounts can be removed once containerd has ended.
    scratch: Scratch,
}

/// How one is set up.
#[derive(Default)]
pub(crate) struct Setup {
    /// Where it keeps its content; otherwise in its own scratch.
    pub(crate) root: Option<PathBuf>,
    /// Image of pod sandboxes.
    pub(crate) sandbox_image: Option<String>,
    /// Snapshotter of images; otherwise overlayfs, or the one of `CONTAINERD_SNAPSHOTTER`.
    pub(crate) snapshotter: Option<&'static str>,
    /// Pods have a network: only for tests that are in one of their own ([`super::network`]).
    pub(crate) pod_network: bool,
}

impl Containerd {
    /// Starts one which takes images of `registry` (`127.0.0.1:PORT`), and those of docker.io from there as well, over plain HTTP.
    #[track_caller]
    pub(crate) fn start(registry: &str) -> Self {
        Self::with(registry, Setup::default())
    }

    /// The same with another setup.
    #[track_caller]
    pub(crate) fn with(registry: &str, setup: Setup) -> Self {
        need_root();
        let scratch = Scratch::new();
        let certs = scratch.directory("certs.d");
        for domain in [registry, "docker.io"] {
            let directory = certs.join(domain);
            fs::create_dir_all(&directory).expect("create a directory of hosts");
            let text = format!(
                "server = \"http://{registry}\"\n[host.\"http://{registry}\"]\n  capabilities = [\"pull\", \"resolve\"]\n"
            );
            fs::write(directory.join("hosts.toml"), text).expect("write a hosts file");
        }
        // A path of a unix socket is short: the socket has a directory of its own.
        let socket = scratch.join("c.sock");
        let config = scratch.join("config.toml");
        if setup.pod_network {
            write_pod_network(&scratch.join("cni"), &scratch.network(), &scratch.join("addresses"));
        }
        let root = setup.root.unwrap_or_else(|| shared_directory(&scratch, "root"));
        let text = configuration(&Configured {
            root: &root,
            home: scratch.path(),
            socket: &socket,
            certs: &certs,
            sandbox_image: setup.sandbox_image.as_deref().unwrap_or("none.invalid/pause:1"),
            snapshotter: setup.snapshotter.unwrap_or(&containerd_config::snapshotter()),
        });
        fs::write(&config, text).expect("write containerd's configuration");
        Self { daemon: start(&config, &socket), config, socket, certs, scratch }
    }

    /// Kills it as `kill -9` does. Its containers keep running.
    pub(crate) fn kill(&self) {
        signal(self.daemon.pid(), rustix::process::Signal::KILL);
        eventually("containerd is gone", || std::os::unix::net::UnixStream::connect(&self.socket).is_err());
    }

    /// Ends it as a service manager does. Its containers keep running.
    pub(crate) fn stop(&mut self) {
        self.daemon.stop();
    }

    /// Where it keeps what is running, network namespaces of pods included.
    pub(crate) fn state(&self) -> PathBuf {
        self.scratch.join("state")
    }

    /// The lines that the daemon has written so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.daemon.lines()
    }

    /// Starts it again where it was killed.
    #[track_caller]
    pub(crate) fn start_again(&mut self) {
        self.daemon = start(&self.config, &self.socket);
    }

    /// Changes the snapshotter of images in the configuration, and starts it again.
    #[track_caller]
    pub(crate) fn set_snapshotter(&mut self, from: &str, to: &str) {
        self.stop();
        let text = fs::read_to_string(&self.config).expect("a configuration");
        let (from, to) = (format!("snapshotter = \"{from}\""), format!("snapshotter = \"{to}\""));
        assert!(text.contains(&from), "{text}");
        fs::write(&self.config, text.replace(&from, &to)).expect("written");
        self.start_again();
    }

    /// The directory of the daemon.
    pub(crate) fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// `unix:///…/c.sock`.
    pub(crate) fn endpoint(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// Makes it trust a certificate of this authority for images of this registry.
    pub(crate) fn trust(&self, registry: &str, authority: &Path) {
        let directory = self.certs.join(registry);
        fs::create_dir_all(&directory).expect("create a directory of hosts");
        // Without a host of its own containerd 1.6 speaks plain HTTP with loopback.
        let (server, authority) = (format!("https://{registry}"), authority.display());
        let host = format!("[host.\"{server}\"]\n  capabilities = [\"pull\", \"resolve\"]\n  ca = \"{authority}\"\n");
        fs::write(directory.join("hosts.toml"), format!("server = \"{server}\"\n{host}")).expect("write a hosts file");
    }

    /// The directory of its hosts files.
    pub(crate) fn certs(&self) -> &Path {
        &self.certs
    }

    /// `ctr` on the images of CRI.
    #[track_caller]
    pub(crate) fn ctr(&self) -> Command {
        let mut command = program("ctr");
        command.arg("--address").arg(&self.socket).args(["--namespace", "k8s.io"]);
        command
    }

    /// Has its applier unpack a blob that it holds into this one mount (`bind` or `overlay`), as a client of its diff service
    /// may. `ctr` cannot ask for that; the two messages are written down here.
    #[track_caller]
    pub(crate) fn apply(&self, blob: &Blob, kind: &str, source: &str, options: &[String]) {
        // Fields of protobuf: bytes under a number.
        let field = |number: u8, bytes: &[u8]| {
            let mut length = bytes.len();
            let mut field = vec![number << 3 | 2];
            while length > 127 {
                field.push(u8::try_from(length & 127 | 128).expect("seven bits and one"));
                length >>= 7;
            }
            field.push(u8::try_from(length).expect("seven bits"));
            field.extend_from_slice(bytes);
            field
        };
        let mut descriptor = field(1, blob.media_type.as_bytes());
        descriptor.extend(field(2, blob.digest.to_string().as_bytes()));
        let mut size = blob.size;
        descriptor.push(3 << 3);
        while size > 127 {
            descriptor.push(u8::try_from(size & 127 | 128).expect("seven bits and one"));
            size >>= 7;
        }
        descriptor.push(u8::try_from(size).expect("seven bits"));
        let mut mount = [field(1, kind.as_bytes()), field(2, source.as_bytes())].concat();
        mount.extend(options.iter().flat_map(|option| field(4, option.as_bytes())));
        let request = [field(1, &descriptor), field(2, &mount)].concat();
        let said = call(&self.socket, "containerd.services.diff.v1.Diff/Apply", &request);
        assert!(is_good(&said), "{said}");
    }

    /// Pulls with containerd's own client, and shows the image's file system on a directory.
    #[track_caller]
    pub(crate) fn mount(&self, image: &str, on: &Path) {
        fs::create_dir_all(on).expect("create the directory to mount on");
        run(self.ctr().args(["images", "pull", "--hosts-dir"]).arg(&self.certs).arg(image));
        run(self.ctr().args(["images", "mount", image]).arg(on));
    }
}

/// A directory with a mount of its own, below which mounts are seen in other namespaces. The scratch removes the mount.
#[track_caller]
fn shared_directory(scratch: &Scratch, name: &str) -> PathBuf {
    let directory = scratch.directory(name);
    run(tool("mount").arg("--bind").arg(&directory).arg(&directory));
    share(&directory);
    directory
}

#[track_caller]
fn start(config: &Path, socket: &Path) -> Daemon {
    let mut program = program("containerd");
    program.arg("-c").arg(config).args(["-l", "info"]);
    let args: Vec<&str> = program.get_args().map(|arg| arg.to_str().expect("an argument is text")).collect();
    let daemon = Daemon::start(Path::new(program.get_program()), &args);
    daemon.wait_for("that it has booted", |l| l.contains("containerd successfully booted").then_some(()));
    daemon.wait_for("that CRI is ready", |l| l.contains("Start streaming server").then_some(()));
    // It says so a moment before it is.
    eventually("containerd's CRI part is up", || {
        is_good(&call(socket, "runtime.v1.RuntimeService/ListContainers", &[]))
    });
    daemon
}

/// Makes a call over gRPC. Returns the headers and trailers of the answer.
#[track_caller]
fn call(socket: &Path, method: &str, request: &[u8]) -> String {
    let length = u32::try_from(request.len()).expect("a short request");
    let message = socket.with_extension("request");
    fs::write(&message, [&[0][..], &length.to_be_bytes(), request].concat()).expect("write a request");
    run(tool("curl")
        .args(["-sS", "--http2-prior-knowledge", "--unix-socket"])
        .arg(socket)
        .args(["-H", "content-type: application/grpc", "-H", "te: trailers", "-H", "containerd-namespace: k8s.io"])
        .args(["-D", "-", "-o", "/dev/null", "--data-binary"])
        .arg(format!("@{}", message.display()))
        .arg(format!("http://localhost/{method}")))
}

fn is_good(said: &str) -> bool {
    said.lines().any(|line| line.trim() == "grpc-status: 0")
}
