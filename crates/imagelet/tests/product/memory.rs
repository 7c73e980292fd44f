//! The memory of the process: it contains passwords, and is not written to a core file; an agent holds no more of it after many pulls.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;

use rustix::process::Signal;

use crate::support::cli::{PROGRAM, end_of};
use crate::support::images;
use crate::support::process::{Daemon, eventually, held, signal, tool};
use crate::support::random::noise_of;
use crate::support::scene::Scene;
use crate::support::{Imagelet, Packing};

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

/// More than the noise of an agent with ten tasks in flight, less than the buffers of one layer of each of six pulls.
const GROWTH: u64 = 8 << 20;

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn an_agent_holds_no_more_after_many_pulls() {
    let s = Scene::new();
    let layers: Vec<_> = (0..4)
        .map(|number| {
            let tree = s.scratch.directory(&format!("tree{number}"));
            images::write(&tree.join(format!("large{number}")), noise_of(&format!("large {number}"), 12 << 20));
            for file in 0..1500 {
                images::write(
                    &tree.join(format!("small{number}/{}/{file}", file % 17)),
                    format!("{file}\n").repeat(file % 300),
                );
            }
            images::settle(&tree);
            s.layout.layer(&tree, if number % 2 == 0 { Packing::Gzip } else { Packing::Zstd })
        })
        .collect();
    let name = s.registry.push(&s.layout, &s.layout.image(&layers), "memory/app:1");
    let socket = s.scratch.join("cri.sock");
    let agent = s.imagelet.serve(&socket);
    let remote = Imagelet::remote(&format!("unix://{}", socket.display()));
    let after_pulls = |count: usize| {
        for _ in 0..count {
            remote.ok(&["pull", &name]);
            remote.ok(&["rmi", &name]);
        }
        held(agent.pid()).expect("the agent runs")
    };
    let (few, many) = (after_pulls(2), after_pulls(8));
    assert!(many <= few + GROWTH, "{} MiB after two pulls, {} MiB after ten", few >> 20, many >> 20);
}
