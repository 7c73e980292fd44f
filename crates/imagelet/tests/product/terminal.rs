//! The terminal as a person sees it: progress bars that fit, follow the size of the terminal, and leave nothing behind; and
//! nothing at all where that was asked for.

use crate::support::cli::PROGRAM;
use crate::support::gate::Gate;
use crate::support::process::{run, tool};
use crate::support::pty::Pty;
use crate::support::random::noise_of;
use crate::support::scene::Scene;
use crate::support::{Packing, runtime};

const LAYERS: [&str; 5] = ["one", "two", "three", "four", "five"];
/// Layers that are fetched side by side.
const FETCHED: usize = 4;

/// A registry with an image of five layers, behind a gate.
fn scene() -> (Scene, tokio::runtime::Runtime, Gate, String) {
    let s = Scene::new();
    let layers: Vec<_> = LAYERS.iter().map(|n| s.file_layer(n, noise_of(n, 3_000_000), Packing::Gzip)).collect();
    let image = s.layout.image(&layers);
    s.registry.push(&s.layout, &image, "team/app:1");
    let runtime = runtime();
    let gate = runtime.block_on(Gate::start(s.registry.host().to_owned()));
    (s, runtime, gate, image.id)
}

/// A transcript has the frames that are removed from the screen later.
#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_check_shows_a_bar_and_leaves_its_result() {
    let s = Scene::new();
    let (name, _) = s.push_file("team/app:1", "a", noise_of("a", 3_000_000));
    s.imagelet.ok(&["pull", &name]);
    let command = format!("{PROGRAM} --root {} check", s.scratch.join("store").display());
    let seen = run(tool("script").args(["-qec", &command, "/dev/null"]).env("TERM", "xterm-256color"));
    assert!(seen.contains(" checking ") && seen.contains("Checked 1 layer ("), "{seen}");
    let imagelet = s.imagelet.clone().env("TERM", "xterm-256color");
    let mut pty = Pty::start(imagelet.command(&["check"]), (80, 24));
    assert_eq!(pty.end(), Some(0), "{}", pty.text());
    assert!(pty.text().starts_with("Checked 1 layer ("), "{}", pty.text());
}

/// Lines with this text.
fn count(text: &str, word: &str) -> usize {
    text.lines().filter(|line| line.contains(word)).count()
}

/// The text without what differs from run to run.
fn frozen(text: &str, gate: &Gate) -> String {
    let text = text.replace(&gate.host(), "HOST");
    let lines = text.lines().map(|line| match line.split_once(" duration=") {
        Some((before, _)) => format!("{before} duration=TIME\n"),
        None => format!("{line}\n"),
    });
    lines.collect()
}

fn bars_in(sizes: &[(u16, u16)]) {
    let (s, _runtime, gate, id) = scene();
    gate.hold_answers_after(20_000);
    let name = format!("{}/team/app:1", gate.host());
    let imagelet = s.imagelet.clone().env("TERM", "xterm-256color");
    let mut pty = Pty::start(imagelet.command(&["pull", &name]), sizes[0]);
    pty.until("bars of the layers", |text| count(text, "fetching") == FETCHED);
    for size in &sizes[1..] {
        pty.resize(*size);
        pty.until("a frame of the new size", |text| !pty.wraps() && count(text, "fetching") == FETCHED);
    }
    let text = pty.text();
    assert_eq!(count(&text, "0/5 layers"), 1, "{text}");
    assert_eq!(text.lines().count(), 1 + FETCHED, "{text}");
    assert!(!pty.wraps(), "{text}");
    gate.open();
    assert_eq!(pty.end(), Some(0), "{}", pty.text());
    let want = format!(" INFO pulled image=HOST/team/app:1 duration=TIME\n{id}\n");
    assert_eq!(frozen(&pty.text(), &gate), want, "{sizes:?}");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn bars_fit_a_wide_terminal_and_leave_nothing() {
    bars_in(&[(110, 30)]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn bars_fit_a_plain_terminal_and_leave_nothing() {
    bars_in(&[(80, 24)]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn bars_fit_a_narrow_terminal_and_leave_nothing() {
    bars_in(&[(40, 20)]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn bars_follow_the_size_of_the_terminal() {
    bars_in(&[(110, 30), (40, 20), (80, 24), (60, 10), (110, 30)]);
}

/// (arguments before `pull`, lines on standard error)
#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn quiet_pulls_say_nothing() {
    let (s, _runtime, gate, id) = scene();
    let name = format!("{}/team/app:1", gate.host());
    let pulled = " INFO pulled image=HOST/team/app:1 duration=TIME\n";
    let cases: [(&[&str], &str); 6] = [
        (&["-q", "--progress", "none"], ""),
        (&["-q"], ""),
        (&["--progress", "none"], pulled),
        (&["-q", "--progress", "none", "--log-level", "info"], pulled),
        (&["--log-level", "warn", "--progress", "none"], ""),
        (&["-q", "-o", "json"], ""),
    ];
    for (words, want) in cases {
        let done = s.imagelet.run(&[words, &["pull", &name]].concat());
        assert_eq!((done.code, frozen(&done.stderr, &gate).as_str()), (Some(0), want), "{words:?}");
        assert_eq!(done.stdout, format!("{id}\n"), "{words:?}");
    }
    // A failure is said all the same.
    let done = s.imagelet.run(&["-q", "--progress", "none", "pull", &format!("{}/team/none:1", gate.host())]);
    assert_eq!((done.code, done.stderr.lines().count()), (Some(1), 1), "{}", done.stderr);
}
