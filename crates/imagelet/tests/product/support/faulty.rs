//! Runs the built `imagelet` while system calls of its fail, without its cooperation. A program that does not end is killed, and
//! reported as a hang.

use std::io::{Read, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use testfault::{Fault, Traced};

use super::cli::{Done, Imagelet};
use super::process::signal;

/// Nothing that a test does takes so long, on however busy a machine.
const HANG: Duration = Duration::from_secs(150);

/// A shell that executes the program once a tracer is attached.
const WAITS: &[&str] = &["/bin/sh", "-c", "read go && exec \"$0\" \"$@\""];

fn reading(mut from: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).expect("a pipe can be read");
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

impl Imagelet {
    /// Runs it to its end, successful or not. Calls about files count if they are about `root` or a path below it.
    #[track_caller]
    pub(crate) fn faulty(&self, args: &[&str], root: &Path, fault: Fault) -> (Done, Traced) {
        let mut command = self.clone().through(WAITS).command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("start {command:?}: {e}"));
        let stdout = reading(child.stdout.take().expect("piped"));
        let stderr = reading(child.stderr.take().expect("piped"));
        let pid = child.id();
        let (ended, end) = mpsc::channel::<()>();
        let watch = thread::spawn(move || {
            if end.recv_timeout(HANG) == Err(RecvTimeoutError::Timeout) {
                signal(pid, Signal::KILL);
                return true;
            }
            false
        });
        let traced = testfault::trace_program(child, root, fault, |child| {
            child.stdin.take().expect("piped").write_all(b"go\n").expect("the shell reads");
        });
        drop(ended);
        let hung = watch.join().expect("no panic");
        let joined = |reader: thread::JoinHandle<String>| reader.join().expect("no panic");
        let done = Done { code: traced.code, stdout: joined(stdout), stderr: joined(stderr) };
        assert!(!hung, "imagelet {args:?} hung with {fault:?}; {:?}\n{}", traced.last, done.stderr);
        (done, traced)
    }
}
