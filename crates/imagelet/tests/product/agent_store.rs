//! Commands without `-i` and `--root` use the images of the agent that runs on this machine, and say so; with either they use what it names and
//! ask no socket. Agents that were killed, belong to another user or do not answer.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::home::Home;
use crate::support::process::{Daemon, eventually, run, signal};
use crate::support::scene::Scene;
use crate::support::{Containerd, Imagelet};

/// A machine whose configuration file names the root, in place of the default one.
struct Machine {
    agent: Option<Daemon>,
    containerd: Containerd,
    imagelet: Imagelet,
    root: PathBuf,
    s: Scene,
}

impl Machine {
    fn new() -> Self {
        let s = Scene::new();
        let containerd = Containerd::start(s.registry.host());
        let root = s.scratch.join("root");
        let config = s.scratch.join("config.yaml");
        let text = format!(
            "apiVersion: imagelet.dev/v1alpha1\nkind: ImageletConfiguration\nroot: {}\nimageMinimumGCAge: 0s\n",
            root.display()
        );
        fs::write(&config, text).expect("write a configuration");
        let imagelet = Imagelet::bare().global("--config", &config.display().to_string());
        Self { agent: None, containerd, imagelet, root, s }
    }

    /// Starts `imagelet serve` over containerd, as the unit does.
    fn serve(&mut self) {
        let endpoint = self.containerd.endpoint();
        let agent = self.imagelet.clone().global("-i", &endpoint).global("-r", &endpoint);
        self.agent = Some(agent.serve(&self.s.scratch.join("cri.sock")));
        let socket = self.socket();
        eventually("the agent answers", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
    }

    fn socket(&self) -> PathBuf {
        self.root.join("admin.sock")
    }

    /// The line about the images that a command uses.
    fn line(&self) -> String {
        let (endpoint, socket) = (self.containerd.endpoint(), self.socket());
        format!("using the images of {endpoint}, like the agent on {}; -i or --root selects others", socket.display())
    }
}

fn lines_about_images(stderr: &str) -> Vec<&str> {
    stderr.lines().filter(|line| line.contains("using the images of")).collect()
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn commands_use_the_images_of_the_agent_and_say_so() {
    let mut m = Machine::new();
    let (name, image) = m.s.push_file("followed/app:1", "etc/app", "content\n");
    m.serve();
    let done = m.imagelet.run(&["pull", &name]);
    assert_eq!((done.code, done.stdout.trim()), (Some(0), image.id.as_str()), "{}", done.stderr);
    assert!(done.stderr.contains(&m.line()), "{}", done.stderr);
    assert_eq!(lines_about_images(&done.stderr).len(), 1, "{}", done.stderr);
    assert!(run(m.containerd.ctr().args(["images", "list", "-q"])).contains(&name), "containerd has the image");

    for args in [
        &["images"][..],
        &["df"],
        &["status"],
        &["explain", &name],
        &["inspect", &name],
        &["history", &name],
        &["ls", &name],
        &["cat", &name, "/etc/app"],
        &["check"],
        &["gc", "--dry-run"],
        &["pins"],
    ] {
        let done = m.imagelet.run(args);
        assert_eq!(done.code, Some(0), "{args:?}: {}", done.stderr);
        assert_eq!(lines_about_images(&done.stderr).len(), 1, "{args:?}: {}", done.stderr);
    }
    assert_eq!(m.imagelet.ids(), [image.id.as_str()]);
    let usage: Value = serde_json::from_str(&m.imagelet.ok(&["df", "-o", "json"])).expect("JSON alone");
    assert_eq!(usage["total"]["images"], 1, "{usage}");
    let status = m.imagelet.ok(&["status"]);
    assert!(status.contains("Pull engine: embedded: it fills containerd's snapshotter"), "{status}");
    let explained = m.imagelet.run(&["explain", &name]).stderr;
    assert!(explained.contains("pullEngine=embedded: it fills containerd's snapshotter"), "{explained}");
    assert_eq!(m.imagelet.ok(&["cat", &name, "/etc/app"]), "content\n");
    // A pin is known to the agent.
    m.imagelet.ok(&["pin", &name]);
    assert!(m.imagelet.ok(&["gc", "explain", &name]).contains("pinned"));
    assert_eq!(m.imagelet.run(&["images", "-q"]).stderr, "", "-q says nothing on standard error");
    m.imagelet.ok(&["unpin", &name]);
    m.imagelet.ok(&["rmi", &name]);
    assert!(!run(m.containerd.ctr().args(["images", "list", "-q"])).contains(&name));
    assert!(!m.root.join("layers").exists(), "no store of imagelet's own was made");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn root_and_endpoint_on_the_command_line_select_the_images() {
    let mut m = Machine::new();
    let (name, image) = m.s.push_file("selected/app:1", "a", "a");
    let root = m.root.display().to_string();
    m.imagelet.ok(&["--root", &root, "pull", &name]);
    m.serve();
    for args in [&["--root", &root][..], &["--image-endpoint", &m.containerd.endpoint()]] {
        let done = m.imagelet.run(&[args, &["images", "-q"]].concat());
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        assert_eq!(lines_about_images(&done.stderr), Vec::<&str>::new());
        let own = if args[0] == "--root" { vec![image.id.as_str()] } else { Vec::new() };
        assert_eq!(done.stdout.lines().collect::<Vec<_>>(), own);
    }
    let variable = m.imagelet.clone().env("IMAGELET_ROOT", &root);
    assert_eq!(variable.ids(), [image.id.as_str()], "a variable selects as a flag does");
    assert_eq!(m.imagelet.ids(), Vec::<String>::new(), "the agent's images are those of containerd");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn without_a_living_agent_commands_use_their_own_store() {
    let mut m = Machine::new();
    let (name, image) = m.s.push_file("own/app:1", "a", "a");
    m.serve();
    let agent = m.agent.take().expect("it runs");
    signal(agent.pid(), Signal::KILL);
    agent.kill();
    assert!(m.socket().exists(), "a killed agent leaves its socket");
    let done = m.imagelet.run(&["pull", &name]);
    assert_eq!((done.code, done.stdout.trim()), (Some(0), image.id.as_str()), "{}", done.stderr);
    assert_eq!(lines_about_images(&done.stderr), Vec::<&str>::new());
    assert_eq!(m.imagelet.ids(), [image.id.as_str()]);
    assert!(!run(m.containerd.ctr().args(["images", "list", "-q"])).contains(&name));
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn agents_of_other_users_and_silent_ones_are_named() {
    let m = Machine::new();
    fs::create_dir_all(&m.root).expect("mkdir");
    let socket = m.socket();
    let _silent = UnixListener::bind(&socket).expect("bind");
    let line = m.imagelet.clone().hurried(20).fails(69, &["images"]);
    let want = format!("error: find the images of the agent on {0}: {0} does not answer; ", socket.display());
    assert!(line.starts_with(&want) && line.ends_with("-i or --root selects images without asking it"), "{line}");
    let root = m.s.scratch.join("other").display().to_string();
    m.imagelet.ok(&["--root", &root, "images"]);

    chown(&socket, Some(65534), None).expect("chown");
    let done = m.imagelet.run(&["images"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let want = format!("the agent on {} is of user 65534: its images are not used", socket.display());
    assert!(done.stderr.contains(&want), "{}", done.stderr);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn root_of_the_serve_unit_is_found_next_to_the_default_one() {
    let s = Scene::new();
    let (name, image) = s.push_file("unit/app:1", "a", "a");
    let home = Home::new();
    let user = home.imagelet();
    let root = home.data().join("imagelet-serve");
    let socket = home.data().join("cri.sock");
    fs::create_dir_all(home.data()).expect("mkdir");
    chown(home.data(), Some(65534), Some(65534)).expect("chown");
    let (directory, endpoint) = (root.display().to_string(), format!("unix://{}", socket.display()));
    let mut agent = user.spawn(&["--root", &directory, "serve", "--listen", &endpoint]);
    eventually("the agent answers", || std::os::unix::net::UnixStream::connect(root.join("admin.sock")).is_ok());
    let done = user.run(&["pull", &name]);
    assert_eq!((done.code, done.stdout.trim()), (Some(0), image.id.as_str()), "{}", done.stderr);
    let want = format!("using the images of {0}, like the agent on {0}/admin.sock", root.display());
    assert!(done.stderr.contains(&want), "{}", done.stderr);
    assert_eq!(user.ids(), [image.id.as_str()]);
    let tipped = user.run(&["top"]);
    assert_eq!(tipped.code, Some(0), "{}", tipped.stderr);
    signal(agent.id(), Signal::TERM);
    agent.wait().expect("it ends");
    assert_eq!(user.ids(), Vec::<String>::new());
}
