//! Starts programs: tools that run to their end, and daemons that die with their test. Knows none of them by name.

use base::lock::{Condvar, Mutex};
use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take to start or to end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A command of this machine; says which script brings it when it is missing.
#[track_caller]
pub(crate) fn tool(name: &str) -> Command {
    let found = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        .iter()
        .map(|directory| Path::new(directory).join(name))
        .find(|path| path.is_file());
    let Some(path) = found else { panic!("{name} is not installed: run scripts/prerequisites.sh") };
    let mut command = Command::new(path);
    command.stdin(Stdio::null());
    command
}

/// The memory of a process in bytes, without what it has from files; `None`: it has ended.
pub(crate) fn held(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kibibytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB"));
        line.and_then(|number| number.parse::<u64>().ok())
    };
    Some((kibibytes("RssAnon:")? + kibibytes("RssShmem:")?) << 10)
}

/// The pages of its program that a process changed at its start, in bytes: addresses that the loader fills in, of which a test's build has
/// megabytes. `None`: it has ended.
fn loaded(pid: u32) -> Option<u64> {
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).ok()?;
    let (mut is_programs, mut sum) = (false, 0);
    for line in maps.lines() {
        match line.strip_prefix("Anonymous:").and_then(|rest| rest.trim().strip_suffix(" kB")) {
            Some(number) if is_programs => sum += number.parse::<u64>().ok()?,
            Some(_) => {}
            None if line.split(' ').next().is_some_and(|first| first.contains('-')) => {
                is_programs = line.ends_with(program.to_str()?);
            }
            None => {}
        }
    }
    Some(sum << 10)
}

/// Polls the memory of a process until `over` is set; returns the maximum. The kernel's own peak is of no use: it includes the pages
/// of files that were mapped then, and does not show which of those the kernel has reclaimed meanwhile.
pub(crate) fn watch_held(pid: u32, over: Arc<AtomicBool>) -> thread::JoinHandle<u64> {
    thread::spawn(move || {
        let (mut most, mut of_program) = (0, 0);
        while !over.load(Ordering::Relaxed) {
            if of_program == 0 {
                of_program = loaded(pid).unwrap_or(0);
            }
            most = held(pid).unwrap_or(0).saturating_sub(of_program).max(most);
            thread::park_timeout(Duration::from_millis(1));
        }
        most
    })
}

/// Runs a command to its end, which must be a good one. The answer is its standard output.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("start {command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?} ended with {}:\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Fails a test that mounts or starts daemons when an ordinary user runs it.
#[track_caller]
pub(crate) fn need_root() {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test needs root: it mounts or starts daemons (scripts/test.sh)"
    );
}

/// Lines that a daemon has written so far.
#[derive(Clone, Default)]
struct Lines(Arc<(Mutex<Vec<String>>, Condvar)>);

impl Lines {
    fn collect(&self, from: impl Read + Send + 'static) {
        let lines = self.clone();
        thread::spawn(move || {
            for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
                let (all, changed) = &*lines.0;
                all.lock().push(String::from_utf8_lossy(&line).into_owned());
                changed.notify_all();
            }
        });
    }
}

/// A daemon: killed by its process id when it is dropped, and by the kernel when the test itself is killed.
pub(crate) struct Daemon {
    name: String,
    child: Child,
    lines: Lines,
}

impl Daemon {
    /// Starts a program. What it writes is kept, for [`Daemon::wait_for`] and for messages.
    #[track_caller]
    pub(crate) fn start(program: &Path, args: &[&str]) -> Self {
        let name = program.display().to_string();
        let mut child = tool("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("start {name}: {e}"));
        let lines = Lines::default();
        lines.collect(child.stdout.take().expect("piped"));
        lines.collect(child.stderr.take().expect("piped"));
        Self { name, child, lines }
    }

    /// Waits for a line, from the first one on, of which `wanted` makes something.
    #[track_caller]
    pub(crate) fn wait_for<T>(&self, what: &str, wanted: impl Fn(&str) -> Option<T>) -> T {
        self.wait_until(what, |lines| lines.iter().find_map(|l| wanted(l)))
    }

    /// Every line so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.0.0.lock().clone()
    }

    /// The lines behind the first `count`.
    pub(crate) fn lines_after(&self, count: usize) -> Vec<String> {
        self.lines.0.0.lock()[count..].to_vec()
    }

    /// Waits until `wanted` makes something of all lines so far.
    #[track_caller]
    pub(crate) fn wait_until<T>(&self, what: &str, wanted: impl Fn(&[String]) -> Option<T>) -> T {
        let (all, changed) = &*self.lines.0;
        let until = Instant::now() + PATIENCE;
        let mut lines = all.lock();
        loop {
            if let Some(found) = wanted(&lines) {
                return found;
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{}: no line says {what}:\n{}", self.name, lines.join("\n"));
            lines = changed.wait_timeout(lines, left);
        }
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it ends by itself, and answers its exit code.
    #[track_caller]
    pub(crate) fn ends(&mut self) -> Option<i32> {
        let status = wait(&mut self.child, PATIENCE);
        status.unwrap_or_else(|| panic!("{} does not end:\n{}", self.name, self.lines().join("\n"))).code()
    }

    /// Kills it as `kill -9` does.
    pub(crate) fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until it has ended by itself, or by a signal that it was sent.
    #[track_caller]
    pub(crate) fn ended(&mut self) -> std::process::ExitStatus {
        wait(&mut self.child, PATIENCE)
            .unwrap_or_else(|| panic!("{} does not end:\n{}", self.name, self.lines().join("\n")))
    }

    /// Asks it to end, and waits until it has; kills it when it does not, and answers false then.
    pub(crate) fn stop(&mut self) -> bool {
        signal(self.child.id(), rustix::process::Signal::TERM);
        let by_itself = wait(&mut self.child, Duration::from_secs(10)).is_some();
        if !by_itself {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        by_itself
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop();
        if self.name.contains("imagelet") && !thread::panicking() {
            super::secrets::search(&self.name, self.lines().join("\n").as_bytes());
        }
    }
}

/// Sends a signal. A process that has ended is no error.
pub(crate) fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).expect("a process id");
    let _ = rustix::process::kill_process(pid, signal);
}

/// Waits for a child at most this long; `None` if it still runs.
pub(crate) fn wait(child: &mut Child, patience: Duration) -> Option<std::process::ExitStatus> {
    // A process descriptor becomes readable when the process ends; nothing is polled by the clock.
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw).expect("a process id");
    if let Ok(fd) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
        let mut ready = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
        let patience = rustix::event::Timespec {
            tv_sec: i64::try_from(patience.as_secs()).expect("a short time"),
            tv_nsec: patience.subsec_nanos().into(),
        };
        let _ = rustix::event::poll(&mut ready, Some(&patience));
    }
    child.try_wait().expect("it is our child")
}

/// Polls until a condition holds, for conditions without a notification.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "it never comes to this: {what}");
        thread::park_timeout(Duration::from_millis(5));
    }
}
