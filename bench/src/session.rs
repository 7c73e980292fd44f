//! Resources of a run, of which nothing is left at its end: a directory for small files, one in memory, the processes it starts,
//! its mounts and control groups.
//!
//! A *janitor*, this very program once more, waits at the end of a pipe which closes when the run ends in whatever way, by a kill
//! too. Then it ends the processes by their ids, takes the mounts away and removes the directories. It knows nothing of engines.

use base::lock::Mutex;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::output::say;
use crate::proc::{ProcessStat, mounts_below};

/// The first argument with which this program is a janitor; the directories follow it.
pub(crate) const JANITOR: &str = "--as-janitor";
/// How long a daemon has to say that it serves, and a process to end when it is asked to.
const PATIENCE: Duration = Duration::from_secs(30);
/// Search path of programs, instead of the caller's, so that runs are alike.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A run.
pub(crate) struct BenchSession {
    /// Small files, sockets, logs.
    pub(crate) work: PathBuf,
    /// The same on a file system in memory, on which no flush costs time.
    pub(crate) memory: PathBuf,
    janitor: Child,
    /// Guards the order of the messages to the janitor.
    word: Mutex<Option<std::process::ChildStdin>>,
    /// Daemons, to be waited for at the end.
    daemons: Mutex<Vec<Child>>,
}

/// A program with a path, an environment and a group of its own, so that a signal to the terminal is the janitor's matter.
pub(crate) fn program(name: impl AsRef<OsStr>, home: &Path) -> Command {
    let mut command = plain(name);
    command.env_clear().env("PATH", PATH).env("HOME", home).env("LC_ALL", "C.UTF-8").process_group(0);
    command.stdin(Stdio::null());
    command
}

/// A program in the caller's environment: the build.
#[expect(clippy::disallowed_methods, reason = "a chore: starting programs is what it is for")]
pub(crate) fn plain(name: impl AsRef<OsStr>) -> Command {
    Command::new(name)
}

impl BenchSession {
    pub(crate) fn begin(target: &Path) -> anyhow::Result<Self> {
        let own = std::process::id();
        let work = target.join(format!("bench-pull.{own}"));
        let memory = Path::new("/dev/shm").join(format!("imagelet-bench-pull.{own}"));
        let janitor = plain(std::env::current_exe().context("find this program")?)
            .arg(JANITOR)
            .args([&work, &memory])
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .context("start the janitor")?;
        let mut session = Self { work, memory, janitor, word: Mutex::default(), daemons: Mutex::default() };
        session.word = Mutex::new(session.janitor.stdin.take());
        for directory in [&session.work, &session.memory] {
            fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
        }
        Ok(session)
    }

    /// Has the janitor take something away at the end.
    fn register(&self, line: &str) -> anyhow::Result<()> {
        let mut word = self.word.lock();
        let word = word.as_mut().context("the janitor was sent away")?;
        writeln!(word, "{line}").context("tell the janitor")
    }

    /// Starts a process, which the janitor ends with its group if this program does not.
    pub(crate) fn spawn(&self, command: &mut Command) -> anyhow::Result<Child> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().with_context(|| format!("start {name}"))?;
        if let Some(stat) = ProcessStat::of(child.id()) {
            self.register(&format!("process {} {}", child.id(), stat.started))?;
        }
        Ok(child)
    }

    /// Has a directory of control groups removed at the end.
    pub(crate) fn remove_at_end(&self, group: &Path) -> anyhow::Result<()> {
        self.register(&format!("group {}", group.display()))
    }

    /// Has the shims of a containerd ended at the end, which outlive it.
    pub(crate) fn end_shims_at_end(&self, socket: &Path) -> anyhow::Result<()> {
        self.register(&format!("shims {}", socket.display()))
    }

    /// Runs a program to its end; its standard output. Its words are in the error when it fails.
    pub(crate) fn output(&self, command: &mut Command) -> anyhow::Result<String> {
        let child = self.spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()))?;
        let output = child.wait_with_output()?;
        if !output.status.success() {
            let name = command.get_program().to_string_lossy();
            let first = command.get_args().next().unwrap_or_default().to_string_lossy();
            bail!("{name} {first}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Starts a daemon and waits until its standard error shows that it serves. Returns its process id and that line.
    pub(crate) fn daemon(&self, command: &mut Command, sign: &'static str) -> anyhow::Result<(u32, String)> {
        let name = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut child = self.spawn(command.stdout(Stdio::null()).stderr(Stdio::piped()))?;
        let pid = child.id();
        let said = child.stderr.take().context("no standard error")?;
        self.daemons.lock().push(child);
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || listen(said, sign, &sender));
        let mut last = String::new();
        loop {
            match receiver.recv_timeout(PATIENCE) {
                Ok((true, line)) => return Ok((pid, line)),
                Ok((false, line)) => last = line,
                Err(_) => bail!("{name} did not start: {last}"),
            }
        }
    }

    /// Ends a daemon and waits for its end.
    pub(crate) fn end(&self, pid: u32) -> anyhow::Result<()> {
        let mut daemons = self.daemons.lock();
        if let Some(at) = daemons.iter().position(|child| child.id() == pid) {
            let mut child = daemons.swap_remove(at);
            signal("TERM", pid);
            child.wait().context("wait for a daemon")?;
        }
        Ok(())
    }
}

impl Drop for BenchSession {
    fn drop(&mut self) {
        // The pipe closes: the janitor begins.
        *self.word.get_mut() = None;
        if let Err(error) = self.janitor.wait() {
            say(&format!("the janitor is lost: {error}"));
        }
        for child in self.daemons.get_mut() {
            drop(child.wait());
        }
    }
}

/// Reads the output of a daemon until its end, and passes on every line up to the sign.
fn listen(said: impl Read, sign: &str, sender: &mpsc::Sender<(bool, String)>) {
    let mut found = false;
    for line in BufReader::new(said).lines().map_while(Result::ok) {
        if !found {
            found = line.contains(sign);
            drop(sender.send((found, line)));
        }
    }
}

/// Returns true if this program runs as root, as a run needs.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Sends a signal to a process and its group.
fn signal(name: &str, pid: u32) {
    let mut kill = program("kill", Path::new("/"));
    drop(kill.args(["-s", name, "--", &format!("-{pid}")]).stderr(Stdio::null()).status());
}

/// Runs the janitor: reads resources from the pipe until it closes, then removes them all.
pub(crate) fn janitor(input: impl BufRead, directories: &[PathBuf]) -> anyhow::Result<()> {
    let (mut processes, mut groups, mut sockets) = (BTreeMap::new(), Vec::new(), Vec::new());
    for line in input.lines().map_while(Result::ok) {
        if let Some((pid, started)) = line.strip_prefix("process ").and_then(|rest| rest.split_once(' ')) {
            processes.insert(pid.parse::<u32>()?, started.parse::<u64>()?);
        } else if let Some(group) = line.strip_prefix("group ") {
            groups.push(PathBuf::from(group));
        } else if let Some(socket) = line.strip_prefix("shims ") {
            sockets.push(socket.to_owned());
        }
    }
    let runs = |pid: u32, started: u64| ProcessStat::of(pid).is_some_and(|stat| stat.started == started && stat.runs());
    for name in ["TERM", "KILL"] {
        for (&pid, &started) in &processes {
            if runs(pid, started) {
                signal(name, pid);
            }
        }
        for _ in 0..PATIENCE.as_millis() / 50 {
            if !processes.iter().any(|(&pid, &started)| runs(pid, started)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    // A shim has a group of its own, and the containers that it manages have theirs.
    for pid in shims_of(&sockets).into_iter().chain(groups.iter().flat_map(|group| processes_of(group))) {
        drop(program("kill", Path::new("/")).args(["-s", "KILL", &pid.to_string()]).stderr(Stdio::null()).status());
    }
    for group in groups {
        for _ in 0..PATIENCE.as_millis() / 50 {
            remove_group(&group);
            if !group.exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    for directory in directories {
        remove(directory)?;
    }
    Ok(())
}

/// The shims that speak with a containerd at one of these sockets.
fn shims_of(sockets: &[String]) -> Vec<u32> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_shim = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        let mut words = line.split('\0');
        words.next().is_some_and(|program| program.contains("containerd-shim"))
            && words.any(|word| sockets.iter().any(|socket| word == socket))
    };
    pids.filter(is_shim).collect()
}

/// The processes of a control group and of those below it.
fn processes_of(group: &Path) -> Vec<u32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let mut pids: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    for below in fs::read_dir(group).into_iter().flatten().flatten().filter(|e| e.path().is_dir()) {
        pids.extend(processes_of(&below.path()));
    }
    pids
}

fn remove_group(group: &Path) {
    for below in fs::read_dir(group).into_iter().flatten().flatten().filter(|e| e.path().is_dir()) {
        remove_group(&below.path());
    }
    drop(fs::remove_dir(group));
}

/// Removes a directory with the mounts below it, if it exists.
pub(crate) fn remove(directory: &Path) -> anyhow::Result<()> {
    let mounts = fs::read_to_string("/proc/mounts").context("read the mounts")?;
    for point in mounts_below(&mounts, directory) {
        let mut umount = program("umount", Path::new("/"));
        umount.arg(&point).stderr(Stdio::null());
        if !umount.status().context("run umount")?.success() {
            // A process still holds it: the unmount takes effect when that process lets go.
            drop(program("umount", Path::new("/")).arg("-l").arg(&point).status());
        }
    }
    match fs::remove_dir_all(directory) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("remove {}", directory.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_janitor_ends_what_was_started_and_nothing_else() {
        let directory = std::env::temp_dir().join(format!("imagelet-janitor.{}", std::process::id()));
        fs::create_dir_all(directory.join("below")).expect("a directory");
        let sleep = || program("sleep", Path::new("/")).arg("600").spawn().expect("sleep");
        let (mut ours, mut other) = (sleep(), sleep());
        let started = |child: &Child| ProcessStat::of(child.id()).expect("it runs").started;
        // The other id is sent with a wrong start time: it is not the process that was meant.
        let input =
            format!("process {} {}\nprocess {} {}\n", ours.id(), started(&ours), other.id(), started(&other) + 1);
        janitor(input.as_bytes(), &[directory.clone(), directory.join("never made")]).expect("clean");
        assert!(!ours.wait().expect("it ended").success());
        assert!(ProcessStat::of(other.id()).expect("it runs").runs());
        assert!(!directory.exists());
        other.kill().expect("ours to end");
        other.wait().expect("it ended");
    }
}
