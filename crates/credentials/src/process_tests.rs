//! Tests of [`super::run`], with real programs.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::test_support::{alive, script, watchdog};

/// A program in a directory of its own.
struct Program {
    directory: tempfile::TempDir,
    path: PathBuf,
}

fn program(body: &str) -> Program {
    let directory = tempfile::tempdir().expect("a directory");
    let path = script(directory.path(), "program", body);
    Program { directory, path }
}

async fn run_with(program: &Program, input: &[u8], timeout: Duration) -> Result<ProcessOutput, RunError> {
    let environment = [("PATH".into(), "/usr/bin:/bin".into()), ("DIR".into(), program.directory.path().into())];
    run(&ProcessSpec {
        program: &program.path,
        arguments: &[],
        environment: &environment,
        input,
        timeout,
        secrets: &["hunter2"],
    })
    .await
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn input_output_status_and_stderr() {
    let program = program("cat; echo 'a hunter2 of a' >&2; echo problem >&2; exit 3");
    let ran = run_with(&program, b"hello", LONG).await.expect("runs");
    assert_eq!(ran.stdout.as_slice(), b"hello");
    assert_eq!(ran.status.code(), Some(3));
    assert_eq!(ran.complaint(&[]), "a <hidden> of a problem");
    assert_eq!(ran.complaint(&["problem"]), "a <hidden> of a <hidden>");
}

#[tokio::test]
async fn environment_is_the_given_one() {
    let program = program("env | sort");
    let environment: Vec<(OsString, OsString)> =
        [("B", "1"), ("A", "first"), ("A", "last")].map(|(n, v)| (n.into(), v.into())).to_vec();
    let ran = run(&ProcessSpec {
        program: &program.path,
        arguments: &[],
        environment: &[environment.as_slice(), &[("PATH".into(), "/usr/bin:/bin".into())]].concat(),
        input: b"",
        timeout: LONG,
        secrets: &[],
    })
    .await
    .expect("runs");
    let shown = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(shown.contains("A=last\n") && shown.contains("B=1\n"), "{shown}");
    assert!(!shown.contains("CARGO") && !shown.contains("first"), "{shown}");
}

#[tokio::test]
async fn program_that_ignores_its_input_succeeds() {
    let input = vec![b'x'; 4 << 20];
    let quick = run_with(&program("exec 0<&-; echo answer"), &input, LONG).await.expect("runs");
    assert_eq!(quick.stdout.as_slice(), b"answer\n");
    assert!(quick.status.success());
}

#[tokio::test]
async fn stdout_and_stderr_are_read_concurrently() {
    // More on each than a pipe holds, one after the other.
    let body = "head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2";
    let ran = run_with(&program(body), b"", LONG).await.expect("runs");
    assert_eq!(ran.stdout.len(), 300_000);
    assert_eq!(ran.stderr.len(), KEPT_STDERR);
    assert!(ran.complaint(&[]).chars().count() < 1000);
}

#[tokio::test]
async fn endless_output_is_cut_off() {
    let program = program("echo $$ >$DIR/pid; while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done");
    let error = run_with(&program, b"", LONG).await.expect_err("too much");
    assert_eq!(error.to_string(), "printed more than 1048576 bytes and was killed");
    wait_until_dead(&program, "pid").await;
}

#[tokio::test]
async fn timeout_kills_the_process_group() {
    let program = program("echo $$ >$DIR/pid; sleep 1000 & echo $! >$DIR/child; wait");
    let error = watchdog(run_with(&program, b"", Duration::from_secs(2))).await.expect_err("too slow");
    assert_eq!(error.to_string(), "timed out after 2s and was killed");
    wait_until_dead(&program, "pid").await;
    wait_until_dead(&program, "child").await;
}

#[tokio::test]
async fn dropped_caller_kills_the_process_group() {
    let program = program("echo $$ >$DIR/pid; sleep 1000 & echo $! >$DIR/child; : >$DIR/ready; wait");
    {
        let mut running = std::pin::pin!(run_with(&program, b"", LONG));
        let ready = program.directory.path().join("ready");
        tokio::select! {
            _ = &mut running => panic!("it does not end"),
            () = until(|| ready.exists()) => {}
        }
    }
    wait_until_dead(&program, "pid").await;
    wait_until_dead(&program, "child").await;
}

#[tokio::test]
async fn background_children_are_not_waited_for() {
    let program = program("sleep 1000 & echo $! >$DIR/child; echo answer");
    let ran = run_with(&program, b"", LONG).await.expect("runs");
    assert_eq!(ran.stdout.as_slice(), b"answer\n");
    // The child process survives, as it would under the kubelet; the test kills it.
    let left = number(&program, "child");
    assert!(alive(left));
    let left = rustix::process::Pid::from_raw(left).expect("a number");
    rustix::process::kill_process(left, rustix::process::Signal::KILL).expect("killed");
}

#[tokio::test]
async fn program_that_cannot_start_is_an_error() {
    let program = Program { path: PathBuf::from("/nowhere/program"), ..program("") };
    let error = run_with(&program, b"", LONG).await.expect_err("missing");
    assert!(matches!(&error, RunError::Start(e) if e.kind() == io::ErrorKind::NotFound), "{error}");
}

#[tokio::test]
async fn program_being_replaced_is_retried() {
    let program = program("echo new");
    let writer = fs::OpenOptions::new().append(true).open(&program.path).expect("opened");
    let (ran, ()) = tokio::join!(run_with(&program, b"", LONG), async {
        // Long enough for the first try; how long does not matter.
        tokio::task::yield_now().await;
        drop(writer);
    });
    assert_eq!(ran.expect("runs").stdout.as_slice(), b"new\n");
}

fn number(program: &Program, file: &str) -> i32 {
    let text = fs::read_to_string(program.directory.path().join(file)).expect("written");
    text.trim().parse().expect("a number")
}

async fn wait_until_dead(program: &Program, file: &str) {
    let number = number(program, file);
    until(|| !alive(number)).await;
}

async fn until(condition: impl Fn() -> bool) {
    crate::test_support::until(condition).await;
}

/// The programs of this test: another end would end those of other tests.
static ENDING: Programs = Programs::new();

#[tokio::test]
async fn programs_are_killed_at_the_end_of_the_process_although_nothing_drops_them() {
    let program = program("exec sleep 1000");
    let environment = [("PATH".into(), "/usr/bin:/bin".into())];
    let spec = ProcessSpec {
        program: &program.path,
        arguments: &[],
        environment: &environment,
        input: b"",
        timeout: LONG,
        secrets: &[],
    };
    let mut group = ENDING.spawn(&mut command(&spec)).expect("starts");
    let ended = ENDING.spawn(&mut command(&spec)).expect("starts");
    drop(ended);
    ENDING.end();
    let status = watchdog(group.child.wait()).await.expect("waited for");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{status}");
    let error = ENDING.spawn(&mut command(&spec)).map(drop).expect_err("nothing is started");
    assert_eq!(error.to_string(), "this process is ending");
}
