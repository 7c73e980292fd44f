//! The memory of the process contains passwords, and is not written to a core file.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;

use rustix::process::Signal;

use crate::support::cli::{PROGRAM, end_of};
use crate::support::process::{Daemon, eventually, signal, tool};
use crate::support::scene::Scene;

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn no_core_file_is_written() {
    let s = Scene::new();
    let socket = s.scratch.join("cri.sock");
    let endpoint = format!("unix://{}", socket.display());
    let root = s.scratch.join("store").display().to_string();
    // As a shell with `ulimit -c unlimited` would start it.
    let prlimit = tool("prlimit");
    let program = prlimit.get_program().to_owned();
    let agent = Daemon::start(
        Path::new(&program),
        &["--core=unlimited", PROGRAM, "--root", &root, "serve", "--listen", &endpoint],
    );
    agent.wait_for("where it serves", |line| line.contains(&socket.display().to_string()).then_some(()));
    let limits = fs::read_to_string(format!("/proc/{}/limits", agent.pid())).expect("the process's limits");
    let core = limits.lines().find(|l| l.starts_with("Max core file size")).expect("a limit of core files");
    assert_eq!(core.split_whitespace().collect::<Vec<_>>()[4..6], ["0", "0"], "{core}");
    drop(agent);
    fs::remove_file(&socket).expect("what is left for the next process");

    let mut killed = s.imagelet.spawn(&["serve", "--listen", &endpoint]);
    eventually("the agent serves", || socket.exists());
    signal(killed.id(), Signal::ABORT);
    let status = end_of(&mut killed);
    assert_eq!(status.signal(), Some(6), "{status}");
    assert!(!status.core_dumped(), "its memory went into a core file");
}
