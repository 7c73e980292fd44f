//! Faults of the machine below the whole program: while a command pulls, removes, collects, converts, mounts, reads or checks, a
//! system call of its fails, once or from then on. It ends by itself with the exit code of the table, says in one line what
//! could not be done and why, and panics never; what was there before is whole, nothing half is visible, mounted, attached or
//! left over, and the same command does it once the fault is gone.
//!
//! `IMAGELET_FAULTS=all` tries each call with each error; otherwise each error is tried at one call of each command, a
//! different one in each. The store is on a tmpfs, whose syncs cost nothing.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use rustix::io::Errno;
use testfault::{Class, Fault};

use super::FORMAT;
use crate::support::images::Image;
use crate::support::manifests::{Manifests, Pod};
use crate::support::process::{eventually, run, tool};
use crate::support::random::noise_of;
use crate::support::scene::Scene;
use crate::support::scratch::loop_devices_below;
use crate::support::{Imagelet, Packing};

/// How calls fail.
struct Trouble {
    name: &'static str,
    class: Class,
    errno: Errno,
    lasting: bool,
}

const fn trouble(name: &'static str, class: Class, errno: Errno, lasting: bool) -> Trouble {
    Trouble { name, class, errno, lasting }
}

const TROUBLES: &[Trouble] = &[
    trouble("the disk is full", Class::Space, Errno::NOSPC, true),
    trouble("the disk is full for a moment", Class::Space, Errno::NOSPC, false),
    trouble("the quota is used up", Class::Space, Errno::DQUOT, true),
    trouble("a file may not become so long", Class::Space, Errno::FBIG, true),
    trouble("the medium fails", Class::Any, Errno::IO, true),
    trouble("the medium fails once", Class::Any, Errno::IO, false),
    trouble("the file system becomes read-only", Class::Change, Errno::ROFS, true),
    trouble("the kernel has no memory for a moment", Class::Any, Errno::NOMEM, false),
    trouble("a call is interrupted", Class::Any, Errno::INTR, false),
    trouble("no descriptor is left", Class::Descriptor, Errno::MFILE, true),
    trouble("no descriptor is left for a moment", Class::Descriptor, Errno::MFILE, false),
    trouble("the machine has no file left", Class::Descriptor, Errno::NFILE, true),
    trouble("no thread can be started", Class::Thread, Errno::AGAIN, true),
    trouble("no thread can be started for a moment", Class::Thread, Errno::AGAIN, false),
    trouble("a connection breaks", Class::Network, Errno::CONNRESET, false),
    trouble("the network has no memory for a moment", Class::Network, Errno::NOBUFS, false),
    trouble("a mount fails", Class::Mount, Errno::NOMEM, false),
    trouble("mounts fail", Class::Mount, Errno::IO, true),
];

/// A store with one image, and an image that commands pull and remove, for each fault.
struct Fixture {
    _scene: Scene,
    imagelet: Imagelet,
    /// The places whose calls count: the store and the mount points.
    memory: PathBuf,
    kept: (String, Image),
    moving: (String, Image),
    manifest: String,
    target: PathBuf,
}

/// The content of a file of the image that is pulled and removed.
const CONTENT: &str = "the upper layer has it\n";

impl Fixture {
    fn new() -> Self {
        let s = Scene::shaped(FORMAT);
        let memory = s.scratch.directory("memory");
        run(tool("mount").args(["-t", "tmpfs", "-o", "size=256m", "test"]).arg(&memory));
        let imagelet =
            Imagelet::shaped(FORMAT, &memory.join("store")).hasty().global("--image-gc-high-threshold", "100");
        let base = s.file_layer("d/base", noise_of("base", 3000), Packing::Gzip);
        // One that is unpacked while it is fetched, and one that is present before.
        let large = s.file_layer("d/large", noise_of("large", 700 << 10), Packing::Gzip);
        let upper = s.file_layer("d/upper", CONTENT, Packing::Gzip);
        let push = |name: &str, layers: &[crate::support::images::Layer]| {
            let image = s.layout.image(layers);
            (s.registry.push(&s.layout, &image, name), image)
        };
        let kept = push("faults/kept:1", std::slice::from_ref(&base));
        let moving = push("faults/moving:1", &[base, large, upper]);
        imagelet.ok(&["pull", &kept.0]);
        imagelet.ok(&["pin", &kept.0]);
        let pod = Pod { namespace: "default", name: "pod", image: &moving.0, policy: "IfNotPresent", secrets: &[] };
        let manifest = Manifests::new().pod(pod).write(&s.scratch.join("pod.yaml"));
        let target = memory.join("target");
        fs::create_dir(&target).expect("creates");
        Self { _scene: s, imagelet, memory, kept, moving, manifest, target }
    }

    fn has_moving(&self) -> bool {
        let ids = self.imagelet.ids();
        assert!(ids.contains(&self.kept.1.id), "the kept image is present");
        ids.contains(&self.moving.1.id)
    }

    fn pull_moving(&self) {
        self.imagelet.ok(&["pull", "-q", &self.moving.0]);
    }

    fn remove_moving(&self) {
        if self.has_moving() {
            self.imagelet.ok(&["rmi", &self.moving.0]);
        }
    }

    fn is_mounted(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("readable");
        let on = self.target.display().to_string();
        mounts.lines().any(|line| line.split(' ').nth(4) == Some(&on))
    }

    fn mount(&self) {
        if !self.is_mounted() {
            self.imagelet.ok(&["mount", &self.moving.0, &self.target.display().to_string()]);
        }
    }

    fn unmount(&self) {
        if self.is_mounted() {
            self.imagelet.ok(&["unmount", &self.target.display().to_string()]);
        }
    }

    fn layers(&self) -> PathBuf {
        self.memory.join("store/layers")
    }

    /// Layers that are directories, and those that are files.
    fn shapes(&self) -> (usize, usize) {
        let layers = fs::read_dir(self.layers()).expect("a store").map(|entry| entry.expect("an entry").path());
        layers.fold((0, 0), |(dir, erofs), layer| {
            (dir + usize::from(layer.join("fs").is_dir()), erofs + usize::from(layer.join("layer.erofs").is_file()))
        })
    }

    /// Asserts that nothing is partial, left over, mounted or attached, and that accounts are right.
    fn check_store(&self, context: &str) {
        let report = self.imagelet.json(&["check"]);
        assert_eq!(report["problems"], serde_json::json!([]), "{context}");
        let left = fs::read_dir(self.memory.join("store/ingest")).expect("a store").count();
        assert_eq!(left, 0, "{context}: something half is left");
        let layers = fs::read_dir(self.layers()).expect("a store").count();
        assert_eq!(layers, if self.has_moving() { 3 } else { 1 }, "{context}: layers on the disk");
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("readable");
        let below = self.memory.display().to_string() + "/";
        let mounts: Vec<&str> = mounts.lines().filter(|line| line.contains(&below)).collect();
        assert_eq!(mounts.len(), usize::from(self.is_mounted()), "{context}: {mounts:#?}");
        if !self.is_mounted() {
            eventually("no loop device is attached", || loop_devices_below(&self.memory).is_empty());
        }
    }
}

/// A command under test.
struct Operation {
    name: &'static str,
    args: fn(&Fixture) -> Vec<String>,
    /// Prepares the store for the command.
    before: fn(&Fixture),
    /// Returns true if the command has had its effect. `stdout` is the output of a run that succeeded.
    is_done: fn(&Fixture, Option<&str>) -> bool,
    /// The kinds of calls that may fail in the command.
    classes: &'static [Class],
}

const FILES: &[Class] = &[Class::Space, Class::Change, Class::Any, Class::Descriptor, Class::Thread];
const PULLS: &[Class] = &[Class::Space, Class::Change, Class::Any, Class::Descriptor, Class::Thread, Class::Network];
const MOUNTS: &[Class] = &[Class::Space, Class::Change, Class::Any, Class::Descriptor, Class::Thread, Class::Mount];

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

const PULL: Operation = Operation {
    name: "pull",
    args: |g| words(&["pull", &g.moving.0]),
    before: Fixture::remove_moving,
    is_done: |g, _| g.has_moving(),
    classes: PULLS,
};

const ENSURE: Operation = Operation {
    name: "ensure",
    args: |g| words(&["ensure", "-f", &g.manifest]),
    before: Fixture::remove_moving,
    is_done: |g, _| g.has_moving(),
    classes: PULLS,
};

const RMI: Operation = Operation {
    name: "rmi",
    args: |g| words(&["rmi", &g.moving.0]),
    before: Fixture::pull_moving,
    is_done: |g, _| !g.has_moving(),
    classes: FILES,
};

const GC: Operation = Operation {
    name: "gc",
    args: |_| words(&["gc", "--all-unused"]),
    before: Fixture::pull_moving,
    is_done: |g, _| !g.has_moving(),
    classes: FILES,
};

const CONVERT: Operation = Operation {
    name: "convert",
    args: |g| words(&["convert", "--to", if FORMAT == "dir" { "erofs" } else { "dir" }, &g.moving.0]),
    before: |g| {
        // The layer below is the other image's as well.
        g.remove_moving();
        g.imagelet.ok(&["convert", "--to", FORMAT, "--all"]);
        g.pull_moving();
    },
    is_done: |g, _| g.shapes() == if FORMAT == "dir" { (0, 3) } else { (3, 0) },
    classes: FILES,
};

const MOUNT: Operation = Operation {
    name: "mount",
    args: |g| words(&["mount", &g.moving.0, &g.target.display().to_string()]),
    before: |g| {
        g.unmount();
        g.pull_moving();
    },
    is_done: |g, _| {
        let mounted = g.is_mounted();
        if mounted {
            assert_eq!(fs::read_to_string(g.target.join("d/upper")).expect("there"), CONTENT);
        }
        mounted
    },
    classes: MOUNTS,
};

const UNMOUNT: Operation = Operation {
    name: "unmount",
    args: |g| words(&["unmount", &g.target.display().to_string()]),
    before: |g| {
        g.pull_moving();
        g.mount();
    },
    is_done: |g, _| !g.is_mounted(),
    classes: MOUNTS,
};

const CAT: Operation = Operation {
    name: "cat",
    args: |g| words(&["cat", &g.moving.0, "/d/upper"]),
    before: Fixture::pull_moving,
    is_done: |_, stdout| stdout.is_none_or(|said| said == CONTENT),
    classes: FILES,
};

const LS: Operation = Operation {
    name: "ls",
    args: |g| words(&["ls", &g.moving.0, "/d"]),
    before: Fixture::pull_moving,
    is_done: |_, stdout| stdout.is_none_or(|said| ["base", "large", "upper"].iter().all(|name| said.contains(name))),
    classes: FILES,
};

const CHECK: Operation = Operation {
    name: "check",
    args: |_| words(&["check", "--deep"]),
    before: Fixture::pull_moving,
    is_done: |_, _| true,
    classes: FILES,
};

/// The number of faults that were tried.
#[derive(Default)]
struct FaultCounts {
    points: u32,
    codes: BTreeMap<String, u32>,
    bad: Vec<String>,
}

fn try_each(operations: &[Operation]) {
    let g = Fixture::new();
    #[expect(clippy::disallowed_methods, reason = "the long form of a test is asked for by the environment")]
    let all = std::env::var("IMAGELET_FAULTS").is_ok_and(|value| value == "all");
    let mut found = FaultCounts::default();
    for (number, operation) in operations.iter().enumerate() {
        let mut counted: BTreeMap<Class, u32> = BTreeMap::new();
        for (place, trouble) in TROUBLES.iter().enumerate() {
            if !operation.classes.contains(&trouble.class) {
                continue;
            }
            let calls = *counted.entry(trouble.class).or_insert_with(|| count(&g, operation, trouble.class));
            assert!(calls > 0 || operation.name == "unmount", "{}: no call of {:?}", operation.name, trouble.class);
            // Each trouble of a command elsewhere, and the same trouble of another command elsewhere as well.
            let few = |number: usize| u32::try_from(number).expect("few");
            let at = 1 + calls * few((place * 7 + number * 5) % TROUBLES.len()) / few(TROUBLES.len());
            let places = if all || calls == 0 { 1..=calls } else { at..=at };
            for at in places {
                let fault = Fault {
                    class: trouble.class,
                    errno: trouble.errno,
                    at: u16::try_from(at).expect("not so many calls"),
                    lasting: trouble.lasting,
                };
                let context = format!("{}: {}, call {at} of {calls}", operation.name, trouble.name);
                let tried = catch_unwind(AssertUnwindSafe(|| attempt(&g, operation, &context, fault)));
                match tried {
                    Ok(end) => *found.codes.entry(end).or_default() += 1,
                    Err(panic) => {
                        let said = panic.downcast_ref::<String>().cloned();
                        let said = said.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                        found.bad.push(format!("{context}: {}", said.unwrap_or_default()));
                    }
                }
                found.points += 1;
            }
        }
    }
    g.unmount();
    writeln!(std::io::stdout(), "{} faults; ends: {:?}", found.points, found.codes).expect("writes");
    assert!(found.bad.is_empty(), "{} of {}:\n{}", found.bad.len(), found.points, found.bad.join("\n"));
}

/// How many calls of this kind the command makes.
fn count(g: &Fixture, operation: &Operation, class: Class) -> u32 {
    (operation.before)(g);
    let args = (operation.args)(g);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let none = Fault { class, errno: Errno::IO, at: u16::MAX, lasting: false };
    let (done, traced) = g.imagelet.faulty(&args, &g.memory, none);
    assert_eq!(done.code, Some(0), "{}: without a fault, {}: {}", operation.name, traced.end, done.stderr);
    traced.calls
}

/// Runs the operation with a fault and checks the result. Returns how the run ended.
fn attempt(g: &Fixture, operation: &Operation, context: &str, fault: Fault) -> String {
    (operation.before)(g);
    let args = (operation.args)(g);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (done, traced) = g.imagelet.faulty(&args, &g.memory, fault);
    let said = &done.stderr;
    let context = &format!("{context}: {}, exit code {:?}", traced.last.join(", "), done.code);
    assert!(!said.contains("panicked at") && !said.contains("fault of the program"), "{context}:\n{said}");
    let stdout = (done.code == Some(0)).then_some(done.stdout.as_str());
    let is_done = (operation.is_done)(g, stdout);
    match done.code {
        Some(0) => assert!(is_done, "{context}: what is said to be done is done:\n{said}"),
        Some(1 | 69) => {
            assert!(traced.failed > 0, "{context}: it fails by itself:\n{said}");
            check_reported(context, fault, &done.stdout, said);
            assert!(done.code == Some(1) || fault.class == Class::Network, "{context}:\n{said}");
        }
        _ => panic!("{context}: {}:\n{said}", traced.end),
    }
    if operation.name != "check" && done.code != Some(0) {
        if !is_done {
            g.imagelet.ok(&args);
        }
        assert!((operation.is_done)(g, None), "{context}: the next try has done it");
    }
    g.check_store(context);
    traced.end
}

/// Asserts that a line names the failed operation and its cause.
fn check_reported(context: &str, fault: Fault, stdout: &str, stderr: &str) {
    let errors: Vec<&str> = stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "{context}: one line of error:\n{stderr}");
    let cause = std::io::Error::from(fault.errno).to_string();
    // Where an error is one problem of a report, the report says why.
    let said = stdout.contains(&cause) || stderr.contains(&cause);
    assert!(said, "{context}: says why ({cause}):\n{stdout}{stderr}");
    assert!(errors[0].len() > cause.len() + 16, "{context}: and what was done:\n{stderr}");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn faults_of_pulls() {
    try_each(&[PULL]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn faults_of_pulls_for_pods() {
    try_each(&[ENSURE]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn faults_of_removals_and_collections() {
    try_each(&[RMI, GC]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn faults_of_conversions() {
    try_each(&[CONVERT]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn faults_of_mounts() {
    try_each(&[MOUNT, UNMOUNT]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn faults_of_readers_and_checks() {
    try_each(&[CAT, LS, CHECK]);
}
