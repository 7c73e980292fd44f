//! [`run`]: one program, fed and read to its end, within a time and within bounds. Credential providers and credential
//! helpers are run by it; nothing else of this crate starts a program.
//!
//! The program runs in a process group of its own. When the time is up, when it prints too much, and when the caller
//! cancels, the whole group is killed, including child processes. At the end of this process, [`end_programs`] kills the groups of tasks
//! that the runtime does not drop in time. This module does not parse the output; the part of
//! the standard error that it keeps is for users and has been cleaned of secrets.

mod redact;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use base::lock::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{sleep, timeout};
use zeroize::Zeroizing;

/// The most that a program may print to its standard output: far above any honest answer.
pub(crate) const MAX_STDOUT: usize = 1 << 20;
/// How much of the standard error is kept. The rest is read and dropped.
const KEPT_STDERR: usize = 64 << 10;
/// How long a process that the program left behind may keep the pipes open after the program's end.
const AFTERMATH: Duration = Duration::from_secs(1);
/// A program that is just being replaced cannot be started; it is tried again for about a second.
const BUSY_TRIES: u32 = 50;
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// Program to run.
pub(crate) struct ProcessSpec<'a> {
    pub(crate) program: &'a Path,
    pub(crate) arguments: &'a [String],
    /// The whole environment; of two values for one name the later one holds.
    pub(crate) environment: &'a [(OsString, OsString)],
    /// Goes to the standard input. A program that does not read it is none the worse.
    pub(crate) input: &'a [u8],
    pub(crate) timeout: Duration,
    /// Never shown, should the program print them to its standard error.
    pub(crate) secrets: &'a [&'a str],
}

/// Result of a program that ended.
pub(crate) struct ProcessOutput {
    pub(crate) status: ExitStatus,
    /// Wiped on drop.
    pub(crate) stdout: Zeroizing<Vec<u8>>,
    stderr: Vec<u8>,
    secrets: Vec<Zeroizing<String>>,
}

impl fmt::Debug for ProcessOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither of the outputs: they may be secrets.
        f.debug_struct("Ran").field("status", &self.status).finish_non_exhaustive()
    }
}

impl ProcessOutput {
    /// The standard error in one short line, without the secrets that were named and without `more`.
    pub(crate) fn complaint(&self, more: &[&str]) -> String {
        let mut secrets: Vec<&str> = self.secrets.iter().map(|s| s.as_str()).collect();
        secrets.extend(more);
        redact::one_line(&self.stderr, self.stderr.len() >= KEPT_STDERR, &secrets)
    }
}

/// Why there is no [`ProcessOutput`]. Says nothing of what the program printed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error("cannot be started: {0}")]
    Start(io::Error),
    #[error("timed out after {0:?} and was killed")]
    TimedOut(Duration),
    #[error("printed more than {MAX_STDOUT} bytes and was killed")]
    TooMuch,
    #[error("pipe error: {0}")]
    Pipes(io::Error),
}

/// Runs it to its end.
pub(crate) async fn run(run: &ProcessSpec<'_>) -> Result<ProcessOutput, RunError> {
    timeout(run.timeout, unhurried(run)).await.unwrap_or(Err(RunError::TimedOut(run.timeout)))
}

async fn unhurried(run: &ProcessSpec<'_>) -> Result<ProcessOutput, RunError> {
    let mut group = start(run).await?;
    let child = &mut group.child;
    let piped = "the pipe was asked for at the start";
    let stdin = child.stdin.take().expect(piped);
    let out = child.stdout.take().expect(piped);
    let err = child.stderr.take().expect(piped);

    let mut stdout = Zeroizing::new(Vec::new());
    let mut stderr = Vec::new();
    let status = {
        let mut pipes = std::pin::pin!(async {
            tokio::try_join!(feed(stdin, run.input), answer(out, &mut stdout), drain(err, &mut stderr))
        });
        tokio::select! {
            status = child.wait() => {
                // The output is in the pipes already. Do not wait for another process that keeps them open.
                if let Ok(result) = timeout(AFTERMATH, &mut pipes).await {
                    result?;
                }
                status
            }
            result = &mut pipes => {
                result?;
                child.wait().await
            }
        }
    }
    .map_err(RunError::Pipes)?;
    let secrets = run.secrets.iter().map(|s| Zeroizing::new((*s).to_owned())).collect();
    Ok(ProcessOutput { status, stdout, stderr, secrets })
}

async fn start(run: &ProcessSpec<'_>) -> Result<ProcessGroup, RunError> {
    let mut command = command(run);
    let mut tries = 0;
    loop {
        match PROGRAMS.spawn(&mut command) {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && tries < BUSY_TRIES => {
                tries += 1;
                sleep(BUSY_PAUSE).await;
            }
            result => return result.map_err(RunError::Start),
        }
    }
}

fn command(run: &ProcessSpec<'_>) -> Command {
    #[expect(clippy::disallowed_methods, reason = "the one place that runs the programs which the configuration names")]
    let mut command = Command::new(run.program);
    command
        .args(run.arguments)
        .env_clear()
        .envs(run.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    command
}

/// The programs of this process.
static PROGRAMS: Programs = Programs::new();

/// Kills the programs that still run, with their child processes, and starts none from now on. To be called at the end of the process: the
/// runtime may not get to dropping the tasks that wait for them.
pub fn end_programs() {
    PROGRAMS.end();
}

/// Programs that run, each with all that it started.
struct Programs {
    /// Guards the leaders of the process groups; `None` after the end.
    leaders: Mutex<Option<Vec<Pid>>>,
}

impl Programs {
    const fn new() -> Self {
        Self { leaders: Mutex::new(Some(Vec::new())) }
    }

    /// Starts a program as the leader of a group.
    fn spawn(&'static self, command: &mut Command) -> io::Result<ProcessGroup> {
        let mut leaders = self.leaders.lock();
        let leaders = leaders.as_mut().ok_or_else(|| io::Error::other("this process is ending"))?;
        let child = command.spawn()?;
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        leaders.extend(leader);
        Ok(ProcessGroup { child, leader, programs: self })
    }

    fn end(&self) {
        // Under the lock no group is dropped: a program that was not waited for keeps its number.
        let mut leaders = self.leaders.lock();
        for leader in leaders.take().unwrap_or_default() {
            kill(leader);
        }
    }
}

/// A program and all that it started, killed unless it was waited for.
struct ProcessGroup {
    child: Child,
    leader: Option<Pid>,
    programs: &'static Programs,
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let mut leaders = self.programs.leaders.lock();
        let Some(leader) = self.leader else { return };
        // As long as the program was not waited for, its number cannot be another's.
        if self.child.id().is_some() {
            kill(leader);
        }
        if let Some(leaders) = leaders.as_mut() {
            leaders.retain(|other| *other != leader);
        }
    }
}

fn kill(leader: Pid) {
    // An error means that the group has just ended: there is nothing to kill.
    let _ = kill_process_group(leader, Signal::KILL);
}

/// Writes the input. A child that does not read it is no error: the answer counts.
async fn feed(mut stdin: ChildStdin, input: &[u8]) -> Result<(), RunError> {
    let _ = stdin.write_all(input).await;
    Ok(())
}

async fn answer(mut from: impl AsyncRead + Unpin, to: &mut Zeroizing<Vec<u8>>) -> Result<(), RunError> {
    let mut chunk = Zeroizing::new([0; 16 << 10]);
    loop {
        let read = from.read(chunk.as_mut_slice()).await.map_err(RunError::Pipes)?;
        if read == 0 {
            return Ok(());
        }
        if to.len() + read > MAX_STDOUT {
            return Err(RunError::TooMuch);
        }
        grow(to, read);
        to.extend_from_slice(&chunk[..read]);
    }
}

/// Makes room without leaving a copy of a secret behind in freed memory.
fn grow(to: &mut Zeroizing<Vec<u8>>, by: usize) {
    if to.capacity() - to.len() < by {
        let mut larger = Zeroizing::new(Vec::with_capacity((to.len() + by).next_power_of_two().max(16 << 10)));
        larger.extend_from_slice(to);
        *to = larger;
    }
}

async fn drain(mut from: impl AsyncRead + Unpin, to: &mut Vec<u8>) -> Result<(), RunError> {
    let mut chunk = [0; 4 << 10];
    loop {
        let read = from.read(&mut chunk).await.map_err(RunError::Pipes)?;
        if read == 0 {
            return Ok(());
        }
        let kept = read.min(KEPT_STDERR - to.len());
        to.extend_from_slice(&chunk[..kept]);
    }
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
