//! Limits of a process below the whole program: threads, descriptors, the length of files, memory. At each of them a pull comes to
//! its end, or ends with one line that names what was missing; where memory is the limit, it may be ended as by a kill. What was
//! there before is whole each time, and the next pull without a limit does it. So is a collection. Layers are of either shape in turn.

use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use crate::support::cgroup::Cgroup;
use crate::support::images::{Image, Layer};
use crate::support::process::{tool, wait};
use crate::support::random::noise_of;
use crate::support::scene::Scene;
use crate::support::{Imagelet, Packing};

const FORMATS: [&str; 2] = ["erofs", "dir"];

struct Fixture {
    s: Scene,
    kept: (String, Image),
    moving: (String, Image),
}

/// End of a command under a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommandEnd {
    Done,
    /// The command failed with a message.
    Refused,
    /// The process was killed for lack of memory.
    Ended,
}

impl Fixture {
    fn new() -> Self {
        let s = Scene::new();
        let base = s.file_layer("base", noise_of("base", 3000), Packing::Gzip);
        let layers: Vec<Layer> = (0..3)
            .map(|n| s.file_layer(&format!("large-{n}"), noise_of(&format!("large {n}"), 1 << 20), Packing::Gzip))
            .collect();
        let push = |name: &str, layers: &[Layer]| {
            let image = s.layout.image(layers);
            (s.registry.push(&s.layout, &image, name), image)
        };
        let kept = push("limits/kept:1", std::slice::from_ref(&base));
        let moving = push("limits/moving:1", &[&[base], layers.as_slice()].concat());
        s.imagelet.ok(&["pull", &kept.0]);
        Self { s, kept, moving }
    }

    /// Runs a command that is started through these words. The answer is how it ended.
    #[track_caller]
    fn run(imagelet: &Imagelet, through: &[&str], args: &[&str], cause: &str) -> CommandEnd {
        let context = &through.join(" ");
        let mut child = imagelet.clone().through(through).spawn(args);
        let status = crate::support::cli::end_of(&mut child);
        let said = std::io::read_to_string(child.stderr.take().expect("piped")).expect("text");
        assert!(!said.contains("panicked at"), "{context}:\n{said}");
        match (status.code(), status.signal()) {
            (Some(0), _) => CommandEnd::Done,
            (Some(1), _) => {
                let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("error: ")).collect();
                assert!(errors.len() == 1 && errors[0].contains(cause), "{context}: {cause}:\n{said}");
                CommandEnd::Refused
            }
            // The loader's words where the program finds no room: none of it has run.
            (Some(127), _) if said.contains("error while loading shared libraries") => CommandEnd::Ended,
            // The ways in which a program ends that gets no memory, by itself or by the kernel.
            (_, Some(6 | 9 | 11)) => CommandEnd::Ended,
            _ => panic!("{context}: {status}:\n{said}"),
        }
    }

    /// Runs a pull through these words, and checks the state afterwards.
    #[track_caller]
    fn pull(&self, format: &str, through: &[&str], cause: &str) -> CommandEnd {
        let context = &through.join(" ");
        let imagelet = self.s.imagelet.clone().global("--layer-format", format);
        let end = Self::run(&imagelet, through, &["pull", &self.moving.0], cause);
        let ids = self.s.imagelet.ids();
        assert!(ids.contains(&self.kept.1.id), "{context}: what was there before is there");
        assert!(end != CommandEnd::Done || ids.contains(&self.moving.1.id), "{context}: a reported success is true");
        assert!(
            end != CommandEnd::Refused || !ids.contains(&self.moving.1.id),
            "{context}: a failed pull leaves no image"
        );
        if end != CommandEnd::Done {
            imagelet.ok(&["pull", &self.moving.0]);
        }
        // Layers that the ended pull had completed were used again.
        self.check(context);
        self.s.imagelet.ok(&["rmi", &self.moving.0]);
        end
    }

    /// Runs a collection through these words, and checks the state afterwards.
    #[track_caller]
    fn collect(&self, format: &str, through: &[&str], cause: &str) -> CommandEnd {
        let context = &through.join(" ");
        let imagelet = self.s.imagelet.clone().hasty().global("--layer-format", format);
        imagelet.ok(&["pull", &self.moving.0]);
        imagelet.ok(&["pin", &self.kept.0]);
        let end = Self::run(&imagelet, through, &["gc", "--all-unused"], cause);
        let ids = imagelet.ids();
        assert!(ids.contains(&self.kept.1.id), "{context}: what is pinned is there");
        let is_there = ids.contains(&self.moving.1.id);
        assert!(end != CommandEnd::Done || !is_there, "{context}: a reported success is true");
        self.check(context);
        imagelet.ok(&["gc", "--all-unused"]);
        assert_eq!(imagelet.ids(), [self.kept.1.id.as_str()], "{context}");
        let layers = fs::read_dir(self.s.scratch.join("store/layers")).expect("a store").count();
        assert_eq!(layers, 1, "{context}: nothing stays of what went");
        end
    }

    /// Asserts that the store is whole and holds nothing else.
    #[track_caller]
    fn check(&self, context: &str) {
        let ingest = fs::read_dir(self.s.scratch.join("store/ingest")).expect("a store").count();
        assert_eq!(ingest, 0, "{context}: something half is left");
        let report = self.s.imagelet.json(&["check"]);
        assert_eq!(report["problems"], serde_json::json!([]), "{context}");
    }
}

/// Runs the step at each limit. It must fail at the lowest limit and succeed at the highest.
#[track_caller]
fn at_each(limits: &[u64], mut step: impl FnMut(&str, u64) -> CommandEnd) {
    let ends: Vec<(u64, CommandEnd)> =
        limits.iter().enumerate().map(|(n, limit)| (*limit, step(FORMATS[n % 2], *limit))).collect();
    writeln!(std::io::stdout(), "{ends:?}").expect("writes");
    assert_ne!(ends[0].1, CommandEnd::Done, "{ends:?}");
    assert_eq!(ends.last().map(|end| end.1), Some(CommandEnd::Done), "{ends:?}");
}

/// A step of a test: [`Fixture::pull`] or [`Fixture::collect`].
type Step = fn(&Fixture, &str, &[&str], &str) -> CommandEnd;

#[track_caller]
fn through_prlimit(step: Step, limits: &[u64], limit: &str, cause: &str) {
    let g = Fixture::new();
    let prlimit = tool("prlimit");
    let program = prlimit.get_program().display().to_string();
    at_each(limits, |format, most| step(&g, format, &[&program, &format!("--{limit}={most}")], cause));
}

#[track_caller]
fn through_cgroup(cgroup: impl Fn(&Fixture) -> Cgroup, step: Step, limits: &[u64], unit: u64, cause: &str) {
    let g = Fixture::new();
    let cgroup = cgroup(&g);
    let words = cgroup.words();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    at_each(limits, |format, most| {
        cgroup.set(most * unit);
        step(&g, format, &words, cause)
    });
}

fn of_threads(step: Step, limits: &[u64]) {
    let cgroup = |g: &Fixture| Cgroup::of_threads(&g.s.scratch, 1);
    through_cgroup(cgroup, step, limits, 1, "Resource temporarily unavailable");
}

fn of_memory(step: Step, mebibytes: &[u64]) {
    through_cgroup(|g: &Fixture| Cgroup::of_memory(&g.s.scratch, 1 << 30), step, mebibytes, 1 << 20, "");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_pull_with_few_threads() {
    of_threads(Fixture::pull, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 40]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_collection_with_few_threads() {
    of_threads(Fixture::collect, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 40]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_pull_with_few_descriptors() {
    through_prlimit(Fixture::pull, &[8, 10, 12, 14, 16, 18, 20, 24, 28, 32, 64], "nofile", "Too many open files");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_collection_with_few_descriptors() {
    through_prlimit(
        Fixture::collect,
        &[8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 20, 24, 32],
        "nofile",
        "Too many open files",
    );
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_pull_with_short_files() {
    through_prlimit(Fixture::pull, &[0, 1000, 100_000, 900_000, 1 << 20, 64 << 20], "fsize", "File too large");
}

const ADDRESSES: [u64; 11] = [60, 80, 100, 120, 140, 160, 200, 250, 300, 400, 4000];

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_pull_with_few_addresses() {
    through_prlimit(Fixture::pull, &ADDRESSES.map(|mebibytes| mebibytes << 20), "as", "");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_collection_with_few_addresses() {
    through_prlimit(Fixture::collect, &ADDRESSES.map(|mebibytes| mebibytes << 20), "as", "");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_pull_with_little_memory() {
    of_memory(Fixture::pull, &[3, 4, 5, 6, 8, 10, 14, 20, 64]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_collection_with_little_memory() {
    of_memory(Fixture::collect, &[2, 3, 4, 5, 6, 7, 8, 10, 14, 64]);
}

/// Clients that take every descriptor which an agent may have.
#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn agent_without_descriptors_recovers_when_some_are_free() {
    let g = Fixture::new();
    let prlimit = tool("prlimit").get_program().display().to_string();
    let socket = g.s.scratch.join("cri.sock");
    let mut agent = g.s.imagelet.clone().through(&[&prlimit, "--nofile=48"]).serve(&socket);
    let held: Vec<UnixStream> = (0..100).map(|_| UnixStream::connect(&socket).expect("there is a queue")).collect();
    let too_many = |line: &str| (line.contains("cannot accept") && line.contains("Too many open files")).then_some(());
    agent.wait_for("that it has too many files open", too_many);
    // A new client waits; none is refused.
    let mut waits = g.s.imagelet.spawn(&["pull", &g.moving.0]);
    assert!(wait(&mut waits, Duration::from_millis(300)).is_none(), "it waits");
    drop(held);
    assert!(crate::support::cli::end_of(&mut waits).success());
    let images = Imagelet::remote(&format!("unix://{}", socket.display())).images();
    assert_eq!(images.len(), 2);
    g.check("after too many clients");
    agent.stop();
    assert_eq!(g.s.imagelet.ids().len(), 2);
}
