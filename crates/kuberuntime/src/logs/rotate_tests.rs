//! Rotation on the runtime in memory, whose logs the test writes.

use base::lock::Mutex;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use cri_api::testing::{CallKind, FakeRuntimeService};
use cri_api::{ContainerConfig, ContainerMetadata, Error, PodSandboxConfig, PodSandboxMetadata};

use super::*;
use crate::labels::{CONTAINER_NAME, POD_NAME, POD_NAMESPACE, POD_UID};

struct Bench {
    top: tempfile::TempDir,
    runtime: FakeRuntimeService,
    rotator: LogRotator,
    now: Arc<Mutex<Timestamp>>,
}

fn bench() -> Bench {
    let top = tempfile::tempdir().unwrap();
    let runtime = FakeRuntimeService::new();
    let now = Arc::new(Mutex::new("2026-01-01T00:00:00Z".parse().unwrap()));
    let clock = Arc::clone(&now);
    let options = LogRotationOptions {
        max_size: 10,
        max_files: 3,
        workers: 2,
        ..LogRotationOptions::new(top.path().join("pods"), Arc::new(move || *clock.lock()))
    };
    let rotator = LogRotator::new(Arc::new(runtime.clone()), options);
    Bench { top, runtime, rotator, now }
}

impl Bench {
    /// A running container with its log, of this program or of another one.
    async fn container(&self, name: &str, ours: bool, log_directory: &str) -> String {
        let directory = self.top.path().join(log_directory);
        let metadata = PodSandboxMetadata { name: name.into(), uid: "u".into(), namespace: "ns".into(), attempt: 0 };
        let mut config = PodSandboxConfig {
            metadata,
            log_directory: directory.to_str().unwrap().into(),
            ..PodSandboxConfig::default()
        };
        if ours {
            config.annotations = BTreeMap::from([(CONTAINERS.to_owned(), "app".to_owned())]);
        }
        let sandbox = self.runtime.run_pod_sandbox(&config, "").await.unwrap();
        let labels = [(POD_NAME, name), (POD_NAMESPACE, "ns"), (POD_UID, "u"), (CONTAINER_NAME, "app")];
        let container = ContainerConfig {
            metadata: ContainerMetadata { name: "app".into(), attempt: 0 },
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            log_path: "app/0.log".into(),
            ..ContainerConfig::default()
        };
        let id = self.runtime.create_container(&sandbox, &container, &config).await.unwrap();
        self.runtime.start_container(&id).await.unwrap();
        fs::create_dir_all(directory.join("app")).unwrap();
        fs::write(directory.join("app/0.log"), format!("{name}: more than enough")).unwrap();
        id
    }

    async fn ours(&self) -> String {
        self.container("web", true, "pods/ns_web_u").await
    }

    fn path(&self, name: &str) -> PathBuf {
        self.top.path().join("pods/ns_web_u/app").join(name)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.path("."))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn set_clock(&self, time: &str) {
        *self.now.lock() = time.parse().unwrap();
    }

    async fn rotated(&self) -> Vec<String> {
        let report = self.rotator.rotate_all().await;
        assert_eq!(report.errors, Vec::<String>::new());
        report.rotated
    }
}

fn text(path: &Path) -> String {
    io::read_to_string(flate2::read::MultiGzDecoder::new(fs::File::open(path).unwrap())).unwrap()
}

#[tokio::test]
async fn logs_are_turned_compressed_and_in_the_end_removed() {
    let bench = bench();
    let id = bench.ours().await;
    fs::set_permissions(bench.path("0.log"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::write(bench.path("0.log.20251231-000000.tmp"), "left").unwrap();
    assert_eq!(bench.rotated().await, std::slice::from_ref(&id));
    assert_eq!(bench.runtime.log_reopened(&id), 1);
    assert_eq!(bench.names(), ["0.log.20260101-000000"]);
    // One that is small, and one that ended, stay as they are.
    fs::write(bench.path("0.log"), "small").unwrap();
    assert_eq!(bench.rotated().await, Vec::<String>::new());
    for (time, content) in [("2026-01-01T00:10:00Z", "second one"), ("2026-01-01T00:20:00Z", "a third one")] {
        bench.set_clock(time);
        fs::write(bench.path("0.log"), content).unwrap();
        assert_eq!(bench.rotated().await, std::slice::from_ref(&id));
    }
    assert_eq!(bench.names(), ["0.log.20260101-001000.gz", "0.log.20260101-002000"]);
    assert_eq!(text(&bench.path("0.log.20260101-001000.gz")), "second one");
    // A clock that was set back does not make the newest the oldest.
    bench.set_clock("2025-06-01T00:00:00Z");
    fs::write(bench.path("0.log"), "a fourth one").unwrap();
    assert_eq!(bench.rotated().await, std::slice::from_ref(&id));
    assert_eq!(bench.names(), ["0.log.20260101-002000.gz", "0.log.20260101-002001"]);
    bench.runtime.exit(&id, 0);
    fs::write(bench.path("0.log"), "large, but its container has ended").unwrap();
    assert_eq!(bench.rotated().await, Vec::<String>::new());
}

#[tokio::test]
async fn logs_of_others_are_left_alone() {
    let bench = bench();
    // No annotation of ours; ours, but elsewhere; ours, over a link; ours, but no file.
    bench.container("theirs", false, "pods/ns_theirs_u").await;
    bench.container("away", true, "elsewhere/ns_away_u").await;
    bench.container("linked", true, "outside/ns_linked_u").await;
    symlink("../outside/ns_linked_u", bench.top.path().join("pods/ns_linked_u")).unwrap();
    let report = bench.rotator.rotate_all().await;
    assert_eq!((report.rotated, report.reopened), (vec![], vec![]));
    for directory in ["pods/ns_theirs_u", "elsewhere/ns_away_u", "outside/ns_linked_u"] {
        let names = fs::read_dir(bench.top.path().join(directory).join("app")).unwrap().count();
        assert_eq!(names, 1, "{directory}");
    }
    assert_eq!(bench.runtime.calls().iter().filter(|(kind, _)| *kind == CallKind::ReopenContainerLog).count(), 0);
    let id = bench.ours().await;
    fs::rename(bench.path("0.log"), bench.path("precious")).unwrap();
    symlink("precious", bench.path("0.log")).unwrap();
    let report = bench.rotator.rotate_all().await;
    let error = format!("cannot rotate the log of container {id}: it is no ordinary file");
    assert!(report.errors.contains(&error), "{:?}", report.errors);
    assert_eq!(bench.names(), ["0.log", "precious"]);
}

#[tokio::test]
async fn a_runtime_that_does_not_open_a_new_log_keeps_the_old_one() {
    let bench = bench();
    let id = bench.ours().await;
    let error = Error::new(Kind::Unavailable, "not now");
    bench.runtime.faults().fail_times(CallKind::ReopenContainerLog, 1, error.clone());
    let report = bench.rotator.rotate_all().await;
    assert_eq!(report.errors, [format!("cannot rotate the log of container {id}: not now")]);
    assert_eq!(bench.names(), ["0.log"]);
    // It did, and its answer was lost: the new file is not written over.
    bench.runtime.faults().fail_times(CallKind::ReopenContainerLog, 1, error.clone());
    let gate = bench.runtime.faults().hold(CallKind::ReopenContainerLog);
    let (report, ()) = tokio::join!(bench.rotator.rotate_all(), async {
        gate.until_waiting(1).await;
        fs::write(bench.path("0.log"), "the new one").unwrap();
        gate.open();
    });
    assert_eq!(report.errors.len(), 1);
    assert_eq!(bench.names(), ["0.log", "0.log.20260101-000000"]);
    assert_eq!(fs::read_to_string(bench.path("0.log")).unwrap(), "the new one");
    // A process was killed after it renamed the log: the next round requests a new one.
    fs::remove_file(bench.path("0.log")).unwrap();
    assert_eq!(bench.rotator.rotate_all().await.reopened, [id]);
    // A runtime that is away.
    bench.runtime.faults().be_absent(error);
    assert_eq!(bench.rotator.rotate_all().await, RotationReport::default());
}

#[tokio::test]
async fn a_kill_in_the_middle_of_compressing_loses_nothing() {
    let bench = bench();
    bench.ours().await;
    for (name, content) in [
        ("0.log.20250101-000000", "plain"),
        ("0.log.20250101-000000.gz.tmp", "half of it"),
        ("0.log.20250102-000000", "compressed already"),
    ] {
        fs::write(bench.path(name), content).unwrap();
    }
    let mut compressed = GzEncoder::new(Vec::new(), Compression::fast());
    io::Write::write_all(&mut compressed, b"compressed already").unwrap();
    fs::write(bench.path("0.log.20250102-000000.gz"), compressed.finish().unwrap()).unwrap();
    // Two of those with the new one are one too many.
    assert_eq!(bench.rotated().await.len(), 1);
    assert_eq!(bench.names(), ["0.log.20250102-000000.gz", "0.log.20260101-000000"]);
    assert_eq!(text(&bench.path("0.log.20250102-000000.gz")), "compressed already");
}

/// A disk of so few bytes that nothing can be compressed.
#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn a_full_disk_keeps_no_log_from_being_rotated() {
    assert!(rustix::process::geteuid().is_root(), "this test mounts a disk: run it as root");
    let bench = bench();
    let pods = bench.top.path().join("pods");
    fs::create_dir(&pods).unwrap();
    let (flags, options) = (rustix::mount::MountFlags::empty(), c"size=64k");
    rustix::mount::mount("tmpfs", &pods, "tmpfs", flags, options).unwrap();
    let id = bench.ours().await;
    // What cannot be made smaller.
    let mut state = 88_172_645_463_325_252_u64;
    let noise = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    fs::write(bench.path("0.log.20250101-000000"), noise.take(4096).collect::<Vec<_>>().concat()).unwrap();
    fs::write(pods.join("filler"), [0; 40 << 10]).unwrap_err();
    let rotated = bench.rotated().await;
    let names = bench.names();
    rustix::mount::unmount(&pods, rustix::mount::UnmountFlags::DETACH).unwrap();
    assert_eq!(rotated, std::slice::from_ref(&id));
    assert_eq!(names, ["0.log.20250101-000000", "0.log.20260101-000000"]);
    assert_eq!(bench.runtime.log_reopened(&id), 1);
}

#[tokio::test(start_paused = true)]
async fn it_looks_every_ten_seconds_until_it_is_stopped() {
    let bench = bench();
    let stop = CancellationToken::new();
    let looks = async {
        for look in 1..=3_usize {
            let lists = || bench.runtime.calls().iter().filter(|(kind, _)| *kind == CallKind::ListPodSandboxes).count();
            while lists() < look {
                tokio::task::yield_now().await;
            }
            assert_eq!(lists(), look);
            tokio::time::advance(Duration::from_secs(10)).await;
        }
        stop.cancel();
    };
    tokio::join!(bench.rotator.run(&stop), looks);
}
