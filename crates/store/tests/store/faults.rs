//! Faults below the store, at every system call with which it asks the disk for something: the call is not made and returns an
//! error, once or from then on. Committed content stays, everything visible is whole, nothing is left after the next open, the
//! error is one line that names the operation and the object, and the same call succeeds without the fault, in the same process
//! and in the next one. The child works on a tmpfs, whose syncs cost nothing. `IMAGELET_FAULTS=all` tries each call with each
//! error; otherwise each error is tried at some of them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use cri_api::engine::ProblemKind;
use imagelet_store::check::{CheckError, CheckOptions, Depth};
use imagelet_store::{ImageCommit, LayerFormat, LayerSource, Store};
use oci::{Digest, chain_id};
use rustix::io::Errno;
use testfault::Fault;

#[path = "faults_reported.rs"]
mod reported;

use super::support::{Image, NEVER, Tar, check_accounts, in_directories, list, options, plain_layer, until_detached};

use reported::{ReportedError, check_reported, each};

const ROOT: &str = "IMAGELET_STORE_FAULTS_ROOT";
const WORK: &str = "IMAGELET_STORE_FAULTS_WORK";

/// The store before each fault.
struct Fixture {
    root: PathBuf,
    /// In the store all the time.
    kept: Image,
    /// Pulled and removed again and again.
    moving: Image,
    /// Is collected with it.
    second: Image,
    /// Of as many layers as are put into one image.
    many: Image,
}

impl Fixture {
    fn new(root: &Path) -> Self {
        let base = plain_layer("base", &[1; 9000]).directory("d/deep", 0o700);
        let dependent = Tar::default().file("d/deep/upper", b"upper").file("d/.wh.base", b"");
        let own = plain_layer("own", &[2; 20_000]).symlink("d/link", "own").device("d/null").file("d/small", b"x");
        Self {
            root: root.to_owned(),
            kept: Image::new("kept", std::slice::from_ref(&base)).with_blobs(),
            second: Image::new("second", &[base.clone(), plain_layer("second", &[3; 5000])]),
            moving: Image::new("moving", &[base, dependent, own]).with_blobs(),
            many: Image::new("many", &(0..61).map(|n| plain_layer(&format!("f{n}"), &[n])).collect::<Vec<_>>()),
        }
    }

    /// Where images are mounted.
    fn target(&self) -> PathBuf {
        self.root.with_file_name("target")
    }

    /// The mounts at the target, and anywhere below the store.
    fn mounts(&self) -> Vec<String> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("readable");
        let on = |line: &str| line.split(' ').nth(4).map(PathBuf::from).expect("a place");
        let ours = |line: &&str| on(line) == self.target() || on(line).starts_with(&self.root);
        mounts.lines().filter(ours).map(str::to_owned).collect()
    }

    /// No mount but one on the target, and no loop device but of that one.
    fn read_mounts(&self) {
        let mounts = self.mounts();
        assert!(mounts.len() <= 1, "{mounts:#?}");
        if mounts.is_empty() {
            until_detached(&self.root);
        }
    }

    fn open(&self) -> Result<Store, ReportedError> {
        Ok(Store::open(&self.root, options())?)
    }

    fn opened(&self) -> Store {
        self.open().unwrap_or_else(|error| panic!("opens: {error:?}"))
    }

    /// As [`Image::try_pull`], with every error answered.
    fn pull(&self, store: &Store) -> Result<(), ReportedError> {
        let lease = store.lease();
        let (mut layers, mut parent) = (Vec::new(), None);
        for (diff_id, tar) in &self.moving.layers {
            let chain = chain_id(parent.as_ref(), diff_id);
            layers.push(match store.find_layer(&lease, diff_id, &chain)? {
                Some(layer) => LayerSource::Present(layer),
                None => {
                    let layer = store.new_layer(&lease)?.unpack(&mut tar.as_slice(), NEVER)?;
                    LayerSource::New { layer: Arc::new(layer), diff_id: diff_id.clone() }
                }
            });
            parent = Some(chain);
        }
        let mut blobs = Vec::new();
        for blob in &self.moving.blobs {
            if let Some(mut ingest) = store.new_blob(&Digest::sha256(blob), blob.len() as u64)? {
                ingest.write(blob)?;
                blobs.push(Arc::new(ingest.finish()?));
            }
        }
        let commit = ImageCommit { layers, blobs, ..self.moving.commit(Some("docker.io/library/moving:1")) };
        store.commit_image(&lease, commit)?;
        Ok(())
    }

    fn has_moving(&self, store: &Store) -> bool {
        store.image(&self.moving.id()).expect("readable").is_some()
    }

    /// Checks that each visible image is whole, and that the kept one is still there.
    fn check(&self, store: &Store) {
        let images = store.images().expect("readable");
        assert!(images.iter().any(|image| image.id == self.kept.id()), "what was committed is there");
        for record in &images {
            let ours = [&self.kept, &self.moving, &self.second, &self.many];
            let image = ours.into_iter().find(|image| image.id() == record.id).expect("ours");
            assert_eq!((&record.config, &record.manifest), (&image.config, &image.manifest));
            assert!(store.image_is_whole(record), "{} has all its layers", record.id);
            for (layer, (_, tar)) in store.image_layers(record).expect("readable").iter().zip(&image.layers) {
                let mut stream = Vec::new();
                store.export_layer(layer, &mut stream).expect("exports");
                assert!(stream == *tar, "layer {} is as it came", layer.id);
            }
        }
    }
}

/// Errors that say that what lies on the disk is lost, and not that the system lacks something.
const OF_THE_MEDIUM: [Errno; 8] =
    [Errno::IO, Errno::UCLEAN, Errno::BADMSG, Errno::NODATA, Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::ISDIR];

fn check(store: &Store, repair: bool) -> Result<cri_api::engine::CheckReport, CheckError> {
    let options =
        CheckOptions { depth: Depth::Files, repair, recent_only: false, cancelled: &|| false, progress: &|_| {} };
    store.check(&options)
}

/// Something that a store does.
struct Work {
    name: &'static str,
    /// Brings the store to where the work begins.
    before: fn(&Fixture, &Store),
    act: fn(&Fixture, &Store) -> Result<(), ReportedError>,
    /// Returns true if the work has been done.
    is_done: fn(&Fixture, &Store) -> bool,
    /// An ordinary run tries one call in so many.
    step: u16,
}

/// Most works make some hundreds of calls.
const SOME: u16 = 17;

fn other_format() -> LayerFormat {
    if in_directories() { LayerFormat::Erofs } else { LayerFormat::Dir }
}

/// Returns a layer of the image that is pulled and removed, as a directory under `layers/`.
fn layer_of_moving(fixture: &Fixture, store: &Store, at: usize) -> PathBuf {
    let record = store.image(&fixture.moving.id()).expect("readable").expect("there");
    fixture.root.join("layers").join(record.layers[at].to_string())
}

fn pull_moving(fixture: &Fixture, store: &Store) {
    if !fixture.has_moving(store) {
        fixture.pull(store).unwrap_or_else(|error| panic!("pulls: {error:?}"));
    }
}

fn remove_moving(fixture: &Fixture, store: &Store) {
    store.remove_image(&fixture.moving.id()).expect("removes");
}

fn unmount(fixture: &Fixture, store: &Store) {
    if !fixture.mounts().is_empty() {
        store.unmount_image(&fixture.target()).expect("unmounts");
    }
}

fn pull_many(fixture: &Fixture, store: &Store) {
    if store.image(&fixture.many.id()).expect("readable").is_none() {
        fixture.many.pull(store, "docker.io/library/many:1");
    }
}

fn mount(fixture: &Fixture, store: &Store, image: &Image, writable: bool) -> Result<(), ReportedError> {
    let record = store.image(&image.id())?.expect("there");
    let upper = fixture.root.with_file_name("writable");
    Ok(store.mount_image(&record, &fixture.target(), writable.then_some(&*upper))?)
}

/// Returns true if this file is visible where images are mounted.
fn shows(fixture: &Fixture, file: &str) -> bool {
    let mounted = !fixture.mounts().is_empty();
    if mounted {
        std::fs::read(fixture.target().join(file)).expect("the whole image is to be seen");
    }
    mounted
}

const WORKS: &[Work] = &[
    Work {
        name: "mount",
        before: |fixture, store| {
            unmount(fixture, store);
            pull_moving(fixture, store);
        },
        act: |fixture, store| mount(fixture, store, &fixture.moving, false),
        is_done: |fixture, _| shows(fixture, "d/small"),
        step: 5,
    },
    Work {
        name: "writable mount",
        before: |fixture, store| {
            unmount(fixture, store);
            pull_moving(fixture, store);
        },
        act: |fixture, store| mount(fixture, store, &fixture.moving, true),
        is_done: |fixture, _| shows(fixture, "d/small"),
        step: 5,
    },
    Work {
        name: "mount of many",
        before: |fixture, store| {
            unmount(fixture, store);
            pull_many(fixture, store);
        },
        act: |fixture, store| mount(fixture, store, &fixture.many, false),
        is_done: |fixture, _| shows(fixture, "d/f60"),
        // Sixty layers are opened, read and inspected each time.
        step: 211,
    },
    Work {
        name: "unmount",
        before: |fixture, store| {
            pull_moving(fixture, store);
            if fixture.mounts().is_empty() {
                mount(fixture, store, &fixture.moving, false).unwrap_or_else(|error| panic!("mounts: {error:?}"));
            }
        },
        act: |fixture, store| Ok(store.unmount_image(&fixture.target())?),
        is_done: |fixture, _| fixture.mounts().is_empty(),
        step: 5,
    },
    Work {
        name: "collection",
        before: |fixture, store| {
            pull_moving(fixture, store);
            fixture.second.pull(store, "docker.io/library/second:1");
        },
        act: |fixture, store| {
            let is_there = |image: &&Image| store.image(&image.id()).is_ok_and(|image| image.is_some());
            let ids: Vec<Digest> =
                [&fixture.moving, &fixture.second].into_iter().filter(is_there).map(Image::id).collect();
            store.remove_images(&ids).into_iter().try_for_each(|removed| Ok(removed.map(drop)?))
        },
        is_done: |fixture, store| {
            !fixture.has_moving(store) && store.image(&fixture.second.id()).expect("readable").is_none()
        },
        step: SOME,
    },
    Work {
        name: "pull",
        before: remove_moving,
        act: |fixture, store| fixture.pull(store),
        is_done: |fixture, store| fixture.has_moving(store),
        step: SOME,
    },
    Work {
        name: "removal",
        before: pull_moving,
        act: |fixture, store| Ok(store.remove_image(&fixture.moving.id()).map(drop)?),
        is_done: |fixture, store| !fixture.has_moving(store),
        step: SOME,
    },
    Work {
        name: "conversion",
        before: |fixture, store| {
            remove_moving(fixture, store);
            pull_moving(fixture, store);
        },
        act: |fixture, store| {
            let done = store.convert_image(&fixture.moving.id(), other_format(), NEVER)?;
            // An unreadable layer is left, and reported as such.
            match done.left.first() {
                Some(left) => Err(ReportedError { text: format!("layer {}: {}", left.diff_id, left.why), full: false }),
                None => Ok(()),
            }
        },
        is_done: |fixture, store| {
            let record = store.image(&fixture.moving.id()).expect("readable").expect("there");
            let paths = store.layer_directories(&record).expect("readable");
            paths.iter().all(|path| path.is_dir() != in_directories())
        },
        step: SOME,
    },
    Work {
        name: "check",
        before: |fixture, store| {
            remove_moving(fixture, store);
            pull_moving(fixture, store);
            // A missing layer, and an unreferenced one.
            std::fs::remove_dir_all(layer_of_moving(fixture, store, 2)).expect("removes");
            std::fs::create_dir_all(fixture.root.join("layers/77777/fs")).expect("creates");
        },
        act: |_, store| {
            let report = check(store, true)?;
            // No layer is damaged. One that could not be read at all may be called so, and no other.
            for problem in report.problems.iter().filter(|problem| problem.kind == ProblemKind::DamagedLayer) {
                let medium = OF_THE_MEDIUM.map(|errno| std::io::Error::from(errno).to_string());
                assert!(medium.iter().any(|cause| problem.detail.contains(cause)), "{problem:?}");
            }
            match report.problems.iter().find(|problem| !problem.repaired) {
                Some(left) => Err(ReportedError { text: format!("{}: {}", left.subject, left.detail), full: false }),
                None => Ok(()),
            }
        },
        is_done: |fixture, store| {
            let record = store.image(&fixture.moving.id()).expect("readable").expect("there");
            !store.image_is_whole(&record) && !fixture.root.join("layers/77777").exists()
        },
        step: SOME,
    },
];

/// Runs in the process whose calls fail.
#[test]
#[ignore = "a process of other tests, which start it: scripts/test.sh"]
fn child() {
    #[expect(clippy::disallowed_methods, reason = "the parent test tells its child by the environment")]
    let variable = |name| std::env::var(name).ok();
    let [root, work] = [ROOT, WORK].map(|name| variable(name).expect("started by another test"));
    writeln!(std::io::stdout(), "READY").expect("the parent reads");
    std::io::stdin().lock().read_line(&mut String::new()).expect("the parent says that it traces");
    let all = variable("IMAGELET_FAULTS").is_some_and(|value| value == "all");
    let fixture = Fixture::new(Path::new(&root));
    if work == "descriptors" {
        few_descriptors(&fixture);
        return;
    }
    let found = match WORKS.iter().find(|known| known.name == work) {
        Some(work) => {
            fixture.kept.pull(&fixture.opened(), "docker.io/library/kept:1");
            let step = if all { 1 } else { work.step };
            each(step, &fixture, |context, fault| try_work(&fixture, work, context, fault))
        }
        None => each(if all { 1 } else { SOME }, &fixture, |context, fault| {
            try_opening(&fixture, work == "making", context, fault)
        }),
    };
    writeln!(std::io::stdout(), "POINTS {}", found.points).expect("the parent reads");
    for bad in &found.bad {
        writeln!(std::io::stdout(), "BAD {bad}").expect("the parent reads");
    }
    assert!(found.bad.is_empty());
}

/// Returns whether a call failed: then there may be more.
fn try_work(fixture: &Fixture, work: &Work, context: &str, fault: Fault) -> bool {
    let context = &format!("{}: {context}", work.name);
    let store = fixture.opened();
    (work.before)(fixture, &store);
    testfault::arm(fault);
    let done = (work.act)(fixture, &store);
    let seen = testfault::disarm();
    if seen.failed == 0 {
        done.unwrap_or_else(|error| panic!("{context}: without a fault: {error:?}"));
        return false;
    }
    if let Err(error) = &done {
        check_reported(context, fault, error, ["check", "conversion"].contains(&work.name));
    }
    let damaged = work.name == "check";
    if !damaged {
        fixture.check(&store);
    }
    fixture.read_mounts();
    let is_done = (work.is_done)(fixture, &store);
    match &done {
        Ok(()) => assert!(is_done, "{context}: what is said to be done is done"),
        // Where not even the end of the failure could be found out, it may be there, and whole.
        Err(error) if work.name == "pull" && !error.text.contains("may be or not") => {
            assert!(!is_done, "{context}: what failed is not visible")
        }
        Err(_) => {}
    }
    if !damaged {
        let report = check(&store, false).expect("ends");
        let left = [ProblemKind::LeftOver, ProblemKind::Orphan, ProblemKind::UnusedLayer];
        let bad: Vec<_> = report.problems.iter().filter(|problem| !left.contains(&problem.kind)).collect();
        assert!(bad.is_empty(), "{context}: {bad:?}");
    }
    // Once more, without a fault.
    if !is_done {
        (work.act)(fixture, &store).unwrap_or_else(|error| panic!("{context}: the next try: {error:?}"));
        assert!((work.is_done)(fixture, &store), "{context}: the next try has done it");
    }
    // While an image is mounted, an additional empty directory may exist next to a layer.
    unmount(fixture, &store);
    drop(store);
    let store = fixture.opened();
    fixture.read_mounts();
    if damaged {
        fixture.pull(&store).unwrap_or_else(|error| panic!("{context}: heals: {error:?}"));
    }
    fixture.check(&store);
    check_accounts(&store);
    let report = check(&store, false).expect("ends");
    assert_eq!((report.problems, report.incomplete_images), (vec![], vec![]), "{context}: after the next open");
    true
}

/// An open that fails, or not, has done no harm.
fn try_opening(fixture: &Fixture, making: bool, context: &str, fault: Fault) -> bool {
    let context = &format!("{}: {context}", if making { "making" } else { "opening" });
    let _ = std::fs::remove_dir_all(&fixture.root);
    if !making {
        let store = fixture.opened();
        fixture.kept.pull(&store, "docker.io/library/kept:1");
        drop(store);
        std::fs::create_dir_all(fixture.root.join("ingest/12/fs")).expect("creates");
        std::fs::create_dir_all(fixture.root.join("layers/900/fs/d")).expect("creates");
        std::fs::write(fixture.root.join("blobs/901"), "x").expect("writes");
    }
    testfault::arm(fault);
    let opened = fixture.open().map(drop);
    let seen = testfault::disarm();
    if seen.failed == 0 {
        opened.unwrap_or_else(|error| panic!("{context}: without a fault: {error:?}"));
        return false;
    }
    if let Err(error) = &opened {
        check_reported(context, fault, error, false);
    }
    let store = fixture.opened();
    if making {
        fixture.kept.pull(&store, "docker.io/library/kept:1");
    }
    fixture.check(&store);
    drop(store);
    let store = fixture.opened();
    check_accounts(&store);
    let report = check(&store, false).expect("ends");
    assert_eq!((report.problems, report.incomplete_images), (vec![], vec![]), "{context}: after the next open");
    true
}

/// With each number of descriptors that the process may have.
fn few_descriptors(fixture: &Fixture) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    fixture.kept.pull(&fixture.opened(), "docker.io/library/kept:1");
    let before = getrlimit(Resource::Nofile);
    let (mut refused, mut done) = (0, 0);
    for most in 4..40 {
        setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..before }).expect("a limit may be lowered");
        let pulled = fixture.open().and_then(|store| fixture.pull(&store));
        setrlimit(Resource::Nofile, before).expect("and raised again");
        let context = format!("{most} descriptors");
        match &pulled {
            Ok(()) => done += 1,
            Err(error) => {
                refused += 1;
                let cause = std::io::Error::from(Errno::MFILE).to_string();
                assert!(error.text.contains(&cause) && !error.full, "{context}: {error:?}");
            }
        }
        let store = fixture.opened();
        fixture.check(&store);
        assert_eq!(fixture.has_moving(&store), pulled.is_ok(), "{context}");
        remove_moving(fixture, &store);
        check_accounts(&store);
    }
    assert!(refused > 5 && done > 5, "{refused} were refused, {done} came to their end");
    writeln!(std::io::stdout(), "POINTS {refused}").expect("the parent reads");
}

#[test]
fn a_pull_with_each_number_of_descriptors() {
    fail_at_every_step("descriptors");
}

/// Unmounts the path when this is dropped.
struct Unmounted(PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        while rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH).is_ok() {}
    }
}

/// Traces a process that does the work again and again.
fn fail_at_every_step(work: &str) {
    let top = tempfile::tempdir_in("/dev/shm").expect("a tmpfs");
    let root = top.path().join("store");
    for name in ["target", "writable"] {
        std::fs::create_dir(top.path().join(name)).expect("creates");
    }
    let _last = Unmounted(top.path().join("target"));
    let module = module_path!().split_once("::").expect("it is no crate").1;
    let program = std::env::current_exe().expect("a test is a program");
    #[expect(clippy::disallowed_methods, reason = "only another process can be traced")]
    let mut child = Command::new(program)
        .args([&format!("{module}::child"), "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env(ROOT, &root)
        .env(WORK, work)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    while !line.contains("READY") {
        line.clear();
        assert_ne!(lines.read_line(&mut line).expect("readable"), 0, "the child ended by itself");
    }
    let traced = testfault::trace(child, &root, |child| {
        writeln!(child.stdin.as_ref().expect("piped"), "go").expect("it listens");
    });
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut lines, &mut rest).expect("readable");
    assert!(traced.success, "{work}: {}; the calls that failed last:\n{}\n{rest}", traced.end, traced.last.join("\n"));
    let points = rest.lines().find_map(|line| line.strip_prefix("POINTS ")).expect("it came to its end");
    writeln!(std::io::stdout(), "{work}: {points} faults; {:?}", traced.by_call).expect("writes");
    assert!(points.parse::<u32>().expect("a number") > 5, "{work}: {points} faults are too few");
    assert!(list(top.path()).len() <= 3);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn every_step_of_a_mount_may_fail() {
    fail_at_every_step("mount");
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn every_step_of_a_writable_mount_may_fail() {
    fail_at_every_step("writable mount");
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn every_step_of_a_mount_of_many_layers_may_fail() {
    fail_at_every_step("mount of many");
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn every_step_of_an_unmount_may_fail() {
    fail_at_every_step("unmount");
}

#[test]
fn every_step_of_a_collection_may_fail() {
    fail_at_every_step("collection");
}

#[test]
fn every_step_of_a_pull_may_fail() {
    fail_at_every_step("pull");
}

#[test]
fn every_step_of_a_removal_may_fail() {
    fail_at_every_step("removal");
}

#[test]
fn every_step_of_a_conversion_may_fail() {
    fail_at_every_step("conversion");
}

#[test]
fn every_step_of_a_check_may_fail() {
    fail_at_every_step("check");
}

#[test]
fn every_step_of_an_opening_may_fail() {
    fail_at_every_step("opening");
}

#[test]
fn every_step_of_the_making_of_a_store_may_fail() {
    fail_at_every_step("making");
}
