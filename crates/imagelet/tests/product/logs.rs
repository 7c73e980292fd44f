//! Logs of containers on real containerd: shown by the command, rotated while they are written.

use std::sync::Arc;
use std::time::Duration;

use cri_api::{ContainerState, RuntimeService as _};
use jiff::Timestamp;
use kuberuntime::labels::CONTAINERS;
use kuberuntime::logs::{LogRotationOptions, LogRotator};

use crate::support::cli::{Imagelet, end_of};
use crate::support::process::PATIENCE;
use crate::support::stage::{Does, Stage};

fn imagelet(stage: &Stage) -> Imagelet {
    stage.scene.imagelet.clone().global("--runtime-endpoint", &stage.containerd.endpoint())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root and daemons: scripts/test.sh"]
async fn logs_are_shown() {
    let stage = Stage::new().await;
    let mut pod = stage.pod("web", 0);
    pod.annotations.insert(CONTAINERS.to_owned(), "app,side".to_owned());
    let sandbox = stage.sandbox(&pod).await;
    let before = stage.container((&sandbox, &pod), "app", 0, Does::Say("the run before", 1)).await;
    stage.ended(&before).await;
    // A line without an end must be last.
    let says = "echo one; echo two >&2; sleep 1; printf 'three'";
    let app = stage.container((&sandbox, &pod), "app", 1, Does::Run(says)).await;
    stage.ended(&app).await;
    let side = stage.container((&sandbox, &pod), "side", 0, Does::Run("echo here; sleep 1000000")).await;

    let imagelet = imagelet(&stage);
    // stdout and stderr are two pipes, and the runtime reads them side by side.
    let lines = |text: String| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(lines(imagelet.ok(&["logs", "web"])), ["one", "three", "two"]);
    assert_eq!(imagelet.ok(&["logs", "-p", "shop/web", "-c", "app"]), "the run before\n");
    assert_eq!(imagelet.ok(&["logs", "--tail", "0", "uid-of-web"]), "");
    assert_eq!(imagelet.ok(&["logs", "--tail", "1", "web"]).lines().count(), 1);
    assert_eq!(imagelet.ok(&["logs", "--since", "5s", "--since=1h", "web"]).lines().count(), 3);
    assert_eq!(imagelet.ok(&["logs", "--since-time", "2100-01-01T00:00:00Z", "web"]), "");
    let all = lines(imagelet.ok(&["logs", "web", "--all-containers", "--prefix"]));
    assert_eq!(all, ["[pod/web/app] one", "[pod/web/app] three", "[pod/web/app] two", "[pod/web/side] here"]);
    let stamped = imagelet.ok(&["logs", "--timestamps", "web", "-c", "side"]);
    let (time, text) = stamped.split_once(' ').expect("a time and a text");
    assert_eq!((text, time.len() >= 30, time.parse::<Timestamp>().is_ok()), ("here\n", true, true), "{stamped}");

    // One that ended is followed to its end; one that runs until it ends.
    assert_eq!(lines(imagelet.ok(&["logs", "-f", "web"])), ["one", "three", "two"]);
    let mut follows = imagelet.spawn(&["logs", "-f", "web", "-c", "side"]);
    stage.service.stop_container(&side, Duration::ZERO).await.expect("stop a container");
    assert!(end_of(&mut follows).success());

    let error = |args: &[&str]| imagelet.fails(1, args);
    assert!(error(&["logs", "none"]).contains("pod \"none\" not found"));
    assert!(error(&["logs", "web", "-c", "other"]).contains("container \"other\" is not in pod shop/web"));
    let previous = error(&["logs", "-p", "web", "-c", "side"]);
    assert!(previous.contains("previous terminated container \"side\" in pod shop/web not found"), "{previous}");
    std::fs::remove_dir_all(std::path::Path::new(&pod.log_directory).join("side")).expect("remove a log");
    assert!(error(&["logs", "web", "-c", "side"]).contains("the log of container \"side\" is gone"));
}

/// Every line arrives once and in order, at a client that follows and at one that connects later, while the log is rotated as
/// often as possible.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root and daemons: scripts/test.sh"]
async fn no_line_is_lost_when_logs_are_rotated() {
    let stage = Stage::new().await;
    let mut pod = stage.pod("web", 0);
    pod.annotations.insert(CONTAINERS.to_owned(), "app".to_owned());
    let sandbox = stage.sandbox(&pod).await;
    // It rests now and then, so that there is time to rotate on a busy machine as well.
    let script = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); echo line $i; [ $((i % 2500)) -ne 0 ] || sleep 0.3; done";
    let app = stage.container((&sandbox, &pod), "app", 0, Does::Run(script)).await;
    let imagelet = imagelet(&stage);
    let follower = imagelet.spawn(&["logs", "-f", "web"]);
    let options = LogRotationOptions {
        max_size: 4096,
        max_files: 10_000,
        ..LogRotationOptions::new(stage.logs(), Arc::new(Timestamp::now))
    };
    let rotator = LogRotator::new(Arc::new(stage.service.clone()), options);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mut rotations = 0;
    while stage.service.container_status(&app, false).await.expect("a status").state == ContainerState::Running {
        let report = rotator.rotate_all().await;
        assert_eq!(report.errors, Vec::<String>::new());
        rotations += report.rotated.len();
        assert!(tokio::time::Instant::now() < deadline, "it does not end");
    }
    assert!(rotations > 3, "{rotations}");
    let want: String = (1..=30_000).map(|line| format!("line {line}\n")).collect();
    let read =
        tokio::task::spawn_blocking(move || follower.wait_with_output()).await.expect("it runs").expect("waited");
    assert!(read.status.success());
    let first_wrong = |text: &str| text.lines().zip(want.lines()).position(|(a, b)| a != b);
    let followed = String::from_utf8_lossy(&read.stdout).into_owned();
    assert!(
        followed == want,
        "{rotations} rotations, {:?}, {} lines",
        first_wrong(&followed),
        followed.lines().count()
    );
    let later = imagelet.ok(&["logs", "web"]);
    assert!(later == want, "{rotations} rotations, {:?}, {} lines", first_wrong(&later), later.lines().count());
    assert_eq!(imagelet.ok(&["logs", "web", "--tail", "29000"]).lines().next(), Some("line 1001"));
}

/// Only this many files of a log are kept, and the command shows the remaining ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root and daemons: scripts/test.sh"]
async fn a_log_keeps_its_number_of_files() {
    let stage = Stage::new().await;
    let mut pod = stage.pod("web", 0);
    pod.annotations.insert(CONTAINERS.to_owned(), "app".to_owned());
    let sandbox = stage.sandbox(&pod).await;
    let script = "i=0; while true; do i=$((i+1)); echo a line that says its number, which is $i; done";
    let app = stage.container((&sandbox, &pod), "app", 0, Does::Run(script)).await;
    let options = LogRotationOptions {
        max_size: 64 << 10,
        max_files: 3,
        ..LogRotationOptions::new(stage.logs(), Arc::new(Timestamp::now))
    };
    let rotator = LogRotator::new(Arc::new(stage.service.clone()), options);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mut rotations = 0;
    while rotations < 5 {
        rotations += rotator.rotate_all().await.rotated.len();
        assert!(tokio::time::Instant::now() < deadline, "it does not write");
    }
    stage.service.stop_container(&app, Duration::ZERO).await.expect("stop a container");
    let directory = std::path::Path::new(&pod.log_directory).join("app");
    let entries = std::fs::read_dir(directory).expect("list the logs");
    let mut names: Vec<String> =
        entries.map(|e| e.expect("an entry").file_name().into_string().expect("text")).collect();
    names.sort();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names[0] == "0.log" && names[1].ends_with(".gz") && !names[2].ends_with(".gz"), "{names:?}");
    let shown = imagelet(&stage).ok(&["logs", "web"]);
    // containerd may have parted a line where it opened a new file: of the oldest file that is left the first line may be the
    // second half of one.
    let half = usize::from(!shown.starts_with("a line that says"));
    let numbers: Vec<u64> = shown.lines().skip(half).filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
    assert!(numbers.len() > 1000 && numbers.windows(2).all(|two| two[1] == two[0] + 1), "{}", numbers.len());
}
