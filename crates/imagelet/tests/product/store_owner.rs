//! Commands that run while another process holds the root, agent or not: queries give the same answers as without it, pulls go
//! through it or wait and say for which process, and its end, of whatever kind, causes no failure.

use registry::testing::{Fault, ImageBuilder, LayerBuilder, TestRegistry};
use rustix::process::Signal;
use tokio::runtime::Runtime;

use crate::support::process::{Daemon, eventually, signal};
use crate::support::{Imagelet, Scratch, runtime};

/// A registry with images that are sent at once and one that is held back until it is released; a store that has one of the first.
struct Scene {
    imagelet: Imagelet,
    /// The image in the store.
    there: String,
    registry: TestRegistry,
    _runtime: Runtime,
    scratch: Scratch,
}

impl Scene {
    fn new() -> Self {
        let scratch = Scratch::new();
        let runtime = runtime();
        let registry = runtime.block_on(TestRegistry::open());
        let platform = || "linux/amd64".parse().expect("a platform");
        let layer = LayerBuilder::new().dir("etc").file("etc/motd", "hello\n").build();
        registry.push("beside/there", "1", &ImageBuilder::new().platform(platform()).layer(layer).build());
        for name in ["slow", "other"] {
            registry.push(&format!("beside/{name}"), "1", &ImageBuilder::tiny(name));
        }
        let imagelet = Imagelet::on(&scratch.join("store"));
        let there = format!("{}/beside/there:1", registry.host());
        imagelet.ok(&["pull", &there]);
        registry.faults().always("/beside/slow/manifests/", Fault::Hang);
        Self { imagelet, there, registry, _runtime: runtime, scratch }
    }

    fn name(&self, name: &str) -> String {
        format!("{}/beside/{name}:1", self.registry.host())
    }

    fn asked_for_slow(&self) -> usize {
        self.registry.requests_for("/beside/slow/manifests/").len()
    }

    /// Starts a command, and returns when it waits for the slow image.
    fn waits_for_slow(&self, imagelet: &Imagelet, args: &[&str]) -> Daemon {
        let asked = self.asked_for_slow();
        let daemon = imagelet.daemon(args);
        eventually("the registry is asked for the slow image", || self.asked_for_slow() > asked);
        daemon
    }

    /// A pull that holds the root.
    fn owner(&self) -> Daemon {
        self.waits_for_slow(&self.imagelet, &["pull", &self.name("slow")])
    }

    fn let_go(&self) {
        self.registry.faults().clear();
        self.registry.faults().release();
    }

    /// A manifest with the slow image.
    fn manifest(&self) -> String {
        let path = self.scratch.join("pod.yaml");
        let image = self.name("slow");
        let pod = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{{name: c, image: '{image}'}}]}}\n"
        );
        std::fs::write(&path, pod).expect("write a manifest");
        path.display().to_string()
    }

    fn listed(&self) -> Vec<String> {
        let mut names: Vec<String> = self.imagelet.ok(&["images", "-o", "name"]).lines().map(str::to_owned).collect();
        names.sort();
        names
    }
}

/// Each kind of query returns the same while any kind of owner runs, and writes nothing to standard error.
#[test]
fn queries_have_the_same_answers_with_every_store_owner() {
    let s = Scene::new();
    let (there, motd) = (s.there.as_str(), format!("{}:/etc/motd", s.there));
    let explained = ["explain", "--policy", "IfNotPresent", there];
    let questions: &[&[&str]] = &[
        &["images"],
        &["images", "-q"],
        &["images", "-o", "json"],
        &["inspect", there],
        &["inspect", "absent.example/x"],
        &["df", "-q"],
        &["df", "-o", "name"],
        &["ls", there, "/etc"],
        &["cat", there, "/etc/motd"],
        &["cat", "absent.example/x", "/etc/motd"],
        &["cp", &motd, "-"],
        &["status", "-q"],
        &["pins"],
        &["mount"],
        &explained,
        &["gc", "explain", there, "-q"],
        &["gc", "--dry-run", "--all-unused", "-q"],
        &["gc", "--interrupted", "--dry-run"],
    ];
    let ask = |args: &[&str]| {
        let done = s.imagelet.run(args);
        // The output of `explain` about served images is for people, and not part of the answer.
        let served = |line: &&str| !line.starts_with(" INFO `imagelet serve` has these images");
        (done.code, done.stdout, done.stderr.lines().filter(served).map(|line| format!("{line}\n")).collect::<String>())
    };
    let alone: Vec<_> = questions.iter().map(|args| ask(args)).collect();
    let manifest = s.manifest();
    let socket = format!("unix://{}", s.scratch.join("cri.sock").display());
    let (slow, ensure, wait) =
        (["pull", &s.name("slow")], ["ensure", "-f", &manifest], ["ensure", "--wait", "-f", &manifest]);
    let owners: [&[&str]; 4] = [&slow, &ensure, &wait, &["serve", "--listen", &socket]];
    for (number, owner) in owners.into_iter().enumerate() {
        let mut running = if owner[0] == "serve" {
            let daemon = s.imagelet.daemon(owner);
            daemon.wait_for("where it serves", |line| line.starts_with("unix://").then_some(()));
            daemon
        } else {
            s.waits_for_slow(&s.imagelet, owner)
        };
        for (args, alone) in questions.iter().zip(&alone) {
            assert_eq!(ask(args), *alone, "imagelet {args:?} beside imagelet {owner:?}");
        }
        let copy = s.scratch.join(&format!("export-{number}"));
        s.imagelet.ok(&["export", there, "-o", &copy.display().to_string()]);
        assert!(copy.join("index.json").exists());
        let checked = s.imagelet.ok(&["check"]);
        assert!(
            checked.starts_with("Checked 1 layer (2.56kB) and 1 image: everything is as it should be."),
            "{checked}"
        );
        running.stop();
    }
    assert_eq!(s.listed(), [there], "the slow image never came");
}

/// Another pull goes through the owner of the root, with its own output and one line that names the owner; so does a removal.
#[test]
fn a_second_pull_does_not_wait_for_the_first() {
    let s = Scene::new();
    let mut owner = s.owner();
    let other = s.name("other");
    let done = s.imagelet.run(&["pull", &other]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let line = format!(
        " INFO {} is held by process {} (imagelet pull), which does the work for this command",
        s.scratch.join("store").display(),
        owner.pid()
    );
    assert_eq!(done.stderr.lines().filter(|said| **said == line).count(), 1, "{}", done.stderr);
    assert_eq!(done.stdout.lines().count(), 1, "its image id: {}", done.stdout);
    assert_eq!(s.listed(), [other.clone(), s.there.clone()]);
    s.imagelet.ok(&["rmi", &other]);
    assert_eq!(s.listed(), [s.there.as_str()]);
    assert_eq!(s.imagelet.ok(&["pin", &s.there]).lines().count(), 2);
    s.let_go();
    assert_eq!(owner.ends(), Some(0));
    assert_eq!(s.listed(), [s.name("slow"), s.there.clone()]);
}

/// A pull that goes through another process continues by itself when that process has ended.
fn the_second_carries_on(end: impl FnOnce(&Scene, Daemon)) {
    let s = Scene::new();
    let owner = s.owner();
    let pid = owner.pid().to_string();
    // It joins the pull that is going on: the registry is not asked once more.
    let mut second = s.imagelet.daemon(&["pull", &s.name("slow")]);
    second.wait_for("through whom it pulls", |line| line.contains(&pid).then_some(()));
    end(&s, owner);
    assert_eq!(second.ends(), Some(0), "{:?}", second.lines());
    assert_eq!(s.listed(), [s.name("slow"), s.there.clone()]);
}

#[test]
fn an_owner_that_is_killed_is_not_missed() {
    the_second_carries_on(|s, owner| {
        let asked = s.asked_for_slow();
        owner.kill();
        eventually("the second one asks by itself", || s.asked_for_slow() > asked);
        s.let_go();
    });
}

#[test]
fn an_owner_that_is_interrupted_is_not_missed() {
    the_second_carries_on(|s, mut owner| {
        let asked = s.asked_for_slow();
        signal(owner.pid(), Signal::INT);
        assert_eq!(owner.ends(), Some(130));
        eventually("the second one asks by itself", || s.asked_for_slow() > asked);
        s.let_go();
    });
}

#[test]
fn an_owner_that_is_done_is_not_missed() {
    the_second_carries_on(|s, mut owner| {
        s.let_go();
        assert_eq!(owner.ends(), Some(0));
    });
}

/// A pull with other settings is not served by the process that holds the root: it waits, names that process, and can be interrupted.
#[test]
fn who_pulls_by_other_settings_waits() {
    let s = Scene::new();
    let mut owner = s.owner();
    let pid = owner.pid();
    let waiting = format!(
        " INFO waiting for process {pid} (imagelet pull), which holds {} and pulls by other settings",
        s.scratch.join("store").display()
    );
    let is_told = |line: &str| (line == waiting).then_some(());
    let other = s.imagelet.clone().global("--allowed-registry-target", "http://cdn.example:9000");
    let mut ended = other.daemon(&["pull", &s.name("other")]);
    ended.wait_for("for whom it waits", is_told);
    signal(ended.pid(), Signal::INT);
    assert_eq!(ended.ends(), Some(130), "{:?}", ended.lines());
    let mut second = other.daemon(&["pull", &s.name("other")]);
    second.wait_for("for whom it waits", is_told);
    let asked = second.lines().iter().filter(|line| **line == waiting).count();
    assert_eq!((asked, s.listed()), (1, vec![s.there.clone()]), "one line, and questions are answered");
    s.let_go();
    assert_eq!((owner.ends(), second.ends()), (Some(0), Some(0)), "{:?}", second.lines());
    assert_eq!(s.listed(), [s.name("other"), s.name("slow"), s.there.clone()]);
}

/// An agent has the root for itself: it waits for a command, and a second agent learns who the first one is.
#[test]
fn an_agent_waits_for_a_pull_and_not_for_an_agent() {
    let s = Scene::new();
    let mut owner = s.owner();
    let listen = |name: &str| format!("unix://{}", s.scratch.join(name).display());
    let agent = s.imagelet.daemon(&["serve", "--listen", &listen("one.sock")]);
    let pid = owner.pid().to_string();
    let waiting = format!("waiting for process {pid} (imagelet pull), which holds ");
    agent.wait_for("for whom it waits", |line| line.contains(&waiting).then_some(()));
    s.let_go();
    assert_eq!(owner.ends(), Some(0));
    agent.wait_for("where it serves", |line| line.starts_with("unix://").then_some(()));
    let second = s.imagelet.fails(1, &["serve", "--listen", &listen("two.sock")]);
    let who = format!("is in use by process {} (imagelet serve)", agent.pid());
    assert!(second.contains(&who), "{second}");
    assert_eq!(s.listed(), [s.name("slow"), s.there.clone()]);
}

/// Every command of a crowd that starts at the same moment, while others begin and end, is answered.
#[test]
fn a_crowd_of_commands_is_answered() {
    let s = Scene::new();
    let (there, other) = (s.there.clone(), s.name("other"));
    let crowd: [&[&str]; 6] = [
        &["images", "-q"],
        &["pull", &other],
        &["df", "-q"],
        &["cat", &there, "/etc/motd"],
        &["inspect", &there, "-q"],
        &["pull", &there],
    ];
    for round in 0..4 {
        let mut running: Vec<_> = crowd.iter().map(|args| (args, s.imagelet.daemon(args))).collect();
        for (args, daemon) in &mut running {
            assert_eq!(daemon.ends(), Some(0), "round {round}, imagelet {args:?}: {:?}", daemon.lines());
        }
    }
    assert_eq!(s.listed(), [other, there]);
}
