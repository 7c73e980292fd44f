//! Ctrl-C and SIGTERM during a pull: it ends at once, with the shell's exit code, and leaves nothing broken behind.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::cli::end_of;
use crate::support::gate::Gate;
use crate::support::process::signal;
use crate::support::runtime;
use crate::support::scene::Scene;

fn interrupted(how: Signal, code: i32) {
    let s = Scene::new();
    let (_, image) = s.push_file("slow/image:1", "big", vec![1_u8; 4 << 20]);
    let runtime = runtime();
    let gate = runtime.block_on(Gate::start(s.registry.host().to_owned()));
    let name = format!("{}/slow/image:1", gate.host());

    gate.shut();
    let mut pull = s.imagelet.spawn(&["pull", &name]);
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(20), gate.reached()).await.expect("the pull asks the registry");
    });
    signal(pull.id(), how);
    // The gate is shut: only the signal can end the pull.
    let status = end_of(&mut pull);
    assert_eq!(status.code(), Some(code), "{status}");
    gate.open();

    assert_eq!(s.imagelet.ids(), Vec::<String>::new());
    assert_eq!(fs::read_dir(s.scratch.join("store/ingest")).expect("the store").count(), 0, "nothing half is left");
    s.imagelet.ok(&["pull", &name]);
    assert_eq!(s.imagelet.ids(), [image.id]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn ctrl_c_ends_a_pull_at_once() {
    interrupted(Signal::INT, 130);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn sigterm_ends_a_pull_at_once() {
    interrupted(Signal::TERM, 143);
}
