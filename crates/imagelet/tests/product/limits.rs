//! Limits of a process below the whole program: threads, descriptors, the length of files, memory. At each of them a pull comes to
//! its end, or ends with one line that names what was missing; where memory is the limit, it may be ended as by a kill. What was
//! there before is whole each time, and the next pull without a limit does it. Layers are of either shape in turn.

use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;

use crate::support::Packing;
use crate::support::cgroup::Cgroup;
use crate::support::images::{Image, Layer};
use crate::support::process::tool;
use crate::support::random::noise_of;
use crate::support::scene::Scene;

const FORMATS: [&str; 2] = ["erofs", "dir"];

struct Ground {
    s: Scene,
    kept: (String, Image),
    moving: (String, Image),
}

/// How a pull ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Done,
    /// With a line.
    Refused,
    /// By a signal, for want of memory.
    Ended,
}

impl Ground {
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

    /// A pull that is started through these words, and what there is afterwards.
    #[track_caller]
    fn pull(&self, format: &str, through: &[&str], cause: &str) -> End {
        let context = &through.join(" ");
        let imagelet = self.s.imagelet.clone().global("--layer-format", format);
        let mut child = imagelet.clone().through(through).spawn(&["pull", &self.moving.0]);
        let status = crate::support::cli::end_of(&mut child);
        let said = std::io::read_to_string(child.stderr.take().expect("piped")).expect("text");
        assert!(!said.contains("panicked at"), "{context}:\n{said}");
        let end = match (status.code(), status.signal()) {
            (Some(0), _) => End::Done,
            (Some(1), _) => {
                let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("error: ")).collect();
                assert!(errors.len() == 1 && errors[0].contains(cause), "{context}: {cause}:\n{said}");
                End::Refused
            }
            // What a program does that gets no memory, and what the kernel does to it.
            (_, Some(6 | 9 | 11)) => End::Ended,
            _ => panic!("{context}: {status}:\n{said}"),
        };
        let ids = self.s.imagelet.ids();
        assert!(ids.contains(&self.kept.1.id), "{context}: what was there before is there");
        assert!(end != End::Done || ids.contains(&self.moving.1.id), "{context}: what is told is so");
        assert!(end != End::Refused || !ids.contains(&self.moving.1.id), "{context}: what failed is not there");
        if end != End::Done {
            imagelet.ok(&["pull", &self.moving.0]);
        }
        // What a pull that was ended had whole was gone on with.
        let ingest = fs::read_dir(self.s.scratch.join("store/ingest")).expect("a store").count();
        assert_eq!(ingest, 0, "{context}: something half is left");
        let report = self.s.imagelet.json(&["check"]);
        assert_eq!(report["problems"], serde_json::json!([]), "{context}");
        self.s.imagelet.ok(&["rmi", &self.moving.0]);
        end
    }
}

/// Pulls at each limit. The lowest must be refused, and the highest must do.
#[track_caller]
fn at_each(limits: &[u64], mut pull: impl FnMut(&str, u64) -> End) {
    let ends: Vec<(u64, End)> =
        limits.iter().enumerate().map(|(n, limit)| (*limit, pull(FORMATS[n % 2], *limit))).collect();
    writeln!(std::io::stdout(), "{ends:?}").expect("writes");
    assert_ne!(ends[0].1, End::Done, "{ends:?}");
    assert_eq!(ends.last().map(|end| end.1), Some(End::Done), "{ends:?}");
}

#[track_caller]
fn through_prlimit(limits: &[u64], limit: &str, cause: &str) {
    let g = Ground::new();
    let prlimit = tool("prlimit");
    let program = prlimit.get_program().display().to_string();
    at_each(limits, |format, most| g.pull(format, &[&program, &format!("--{limit}={most}")], cause));
}

#[test]
fn a_pull_with_few_threads() {
    let g = Ground::new();
    let Some(cgroup) = Cgroup::of_threads(&g.s.scratch, 1) else { return };
    let words = cgroup.words();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    at_each(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 40], |format, most| {
        cgroup.set(most);
        g.pull(format, &words, "Resource temporarily unavailable")
    });
}

#[test]
fn a_pull_with_few_descriptors() {
    through_prlimit(&[8, 10, 12, 14, 16, 18, 20, 24, 28, 32, 64], "nofile", "Too many open files");
}

#[test]
fn a_pull_with_short_files() {
    through_prlimit(&[0, 1000, 100_000, 900_000, 1 << 20, 64 << 20], "fsize", "File too large");
}

#[test]
fn a_pull_with_few_addresses() {
    let mebibytes = [60_u64, 80, 100, 120, 140, 160, 200, 250, 300, 400, 4000].map(|size| size << 20);
    through_prlimit(&mebibytes, "as", "");
}

#[test]
fn a_pull_with_little_memory() {
    let g = Ground::new();
    let Some(cgroup) = Cgroup::of_memory(&g.s.scratch, 1 << 30) else { return };
    let words = cgroup.words();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    at_each(&[3, 4, 5, 6, 8, 10, 14, 20, 64], |format, most| {
        cgroup.set(most << 20);
        g.pull(format, &words, "")
    });
}
