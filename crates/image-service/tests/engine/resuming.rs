//! Pulls that are interrupted, by a kill, a shutdown or a caller that goes, and the next one, which goes on with what they left: how
//! many bytes the registry serves in all, that nothing wrong is believed, and that nothing stays in the end.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use cri_api::engine::ImageEngine as _;
use cri_api::{ImageService as _, LayerState, ProgressSink, PullEvent, PullImageRequest};
use image_service::{Engine, EngineOptions, Resume};
use oci::Digest;
use registry::testing::{BuiltImage, Fault, Line, TestRegistry};
use store::LayerFormat;
use store::check::{CheckOptions, Depth};

use crate::support::{Node, blob, image, layer, options};

const FIRST: usize = 2_000_000;
const SECOND: usize = 6_000_000;
/// How far the second layer comes.
const CUT: usize = 5_000_000;
/// A pull that comes this near to the cut is interrupted: the rest of what was sent may not have been read.
const NEAR: usize = 500_000;
/// Bytes that may be on their way when a pull ends: those, a piece that is being written, and one that is not full.
const SLACK: u64 = 1_200_000;
/// The same at a kill, after which nothing is written any more: both pieces may be as long as one, and what came last, are together.
const SLACK_OF_A_KILL: u64 = NEAR as u64 + 2 * (512 << 10) + (64 << 10);

const FORMATS: [LayerFormat; 2] = [LayerFormat::Dir, LayerFormat::Erofs];

fn keeping(directory: &Path, resume: Resume, format: LayerFormat) -> EngineOptions {
    let mut options = EngineOptions { resume, ..options(directory) };
    options.store.layer_format = format;
    options
}

async fn start(resume: Resume, format: LayerFormat) -> Node {
    Node::with(|options| (options.resume, options.store.layer_format) = (resume, format)).await
}

/// The engine ends, and another one begins.
async fn restart(node: Node, resume: Resume, format: LayerFormat) -> Node {
    let Node { engine, registry, directory } = node;
    engine.shutdown().await;
    drop(engine);
    let engine = Engine::open(keeping(directory.path(), resume, format)).await.expect("opens");
    Node { engine, registry, directory }
}

fn push_whole(registry: &TestRegistry) -> BuiltImage {
    let image = image().layer(layer("a/x", 1, FIRST)).layer(layer("b/y", 2, SECOND)).build();
    registry.push("app", "v1", &image);
    image
}

/// Two layers, of which the second comes this far and stops.
fn push(registry: &TestRegistry) -> BuiltImage {
    let image = push_whole(registry);
    registry.faults().once(&format!("/blobs/{}", blob(&image, 1)), Fault::HangAfter { after: CUT });
    image
}

/// Pulls until one layer is complete and most of the bytes that the registry sends of the other one have arrived.
async fn pull_in_part(node: &Node, image: &BuiltImage) {
    let (pull, watch) = node.start_pull("app:v1");
    watch.until_layer(&blob(image, 0), LayerState::Done).await;
    let second = blob(image, 1);
    let far = |event: &PullEvent| matches!(event, PullEvent::Bytes { digest, done } if *digest == second && *done + NEAR as u64 > CUT as u64);
    watch.until(far).await;
    pull.abort();
    // It may have ended before.
    let _ = pull.await;
}

fn ranges(node: &Node, digest: &Digest) -> Vec<String> {
    let requests = node.registry.requests_for(&format!("/blobs/{digest}"));
    requests.iter().map(|request| request.range().unwrap_or("-").to_owned()).collect()
}

/// The origin of the blobs of these tests, as the engine records it.
fn origin(node: &Node) -> String {
    format!("public {}", node.name("app"))
}

/// Where an open range begins.
fn from(range: &str) -> u64 {
    let from = range.strip_prefix("bytes=").and_then(|range| range.strip_suffix('-'));
    from.and_then(|from| from.parse().ok()).expect("an open range")
}

/// All of it is what it should be, and nothing else is there.
async fn check(node: &Node) {
    node.check_clean().await;
    let options = CheckOptions {
        depth: Depth::Files,
        repair: false,
        recent_only: false,
        cancelled: &|| false,
        progress: &|_| {},
    };
    let report = node.engine.store().check(&options).expect("ends");
    assert!(report.problems.is_empty() && report.layers_checked == 2, "{report:?}");
}

async fn ready(node: &Node, image: &BuiltImage) {
    let id = node.pull("app:v1").await.expect("pulls");
    assert_eq!(id, image.id().to_string());
    check(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_fetched_before_a_restart_are_not_fetched_again() {
    for format in FORMATS {
        let node = start(Resume::Always, format).await;
        let image = push(&node.registry);
        pull_in_part(&node, &image).await;
        let node = restart(node, Resume::Always, format).await;
        node.registry.release_what_was_given_up().await;
        let left = node.engine.unfinished_pulls().await.expect("known");
        assert_eq!((left.layers, left.blobs), (1, 1));
        assert!(left.bytes > (FIRST + CUT) as u64 - SLACK, "{left:?}");
        node.registry.clear_requests();
        ready(&node, &image).await;
        let asked = ranges(&node, &blob(&image, 1));
        assert!(asked.len() == 1 && from(&asked[0]) > CUT as u64 - 500_000, "{asked:?}");
        assert_eq!(ranges(&node, &blob(&image, 0)), Vec::<String>::new(), "it was whole");
        let all = image.layers.iter().map(|layer| layer.descriptor.size).sum::<u64>();
        assert!(node.registry.bytes_sent() < all + SLACK, "{} of {all}", node.registry.bytes_sent());
        assert_eq!(node.engine.unfinished_pulls().await.expect("known"), cri_api::engine::UnfinishedPulls::default());
    }
}

const ROOT: &str = "IMAGELET_ENGINE_RESUME_ROOT";
const NAME: &str = "IMAGELET_ENGINE_RESUME_NAME";

/// The process that is killed.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a process of other tests, which start it: scripts/test.sh"]
async fn child() {
    #[expect(clippy::disallowed_methods, reason = "the parent test tells its child by the environment")]
    let [root, name] = [ROOT, NAME].map(|name| std::env::var(name).expect("started by another test"));
    let root = PathBuf::from(root);
    let (name, words) = name.split_once(' ').expect("name and format");
    let format = if words.starts_with("erofs") { LayerFormat::Erofs } else { LayerFormat::Dir };
    let options = EngineOptions { keep_blobs: words.ends_with("keep"), ..keeping(&root, Resume::Always, format) };
    let engine = Engine::open(options).await.expect("opens");
    let say = |event: PullEvent| match event {
        PullEvent::Layer { digest, state: LayerState::Done } => writeln!(std::io::stdout(), "STEP done {digest}"),
        PullEvent::Bytes { digest, done } => writeln!(std::io::stdout(), "STEP bytes {digest} {done}"),
        _ => Ok(()),
    };
    let progress = ProgressSink::new(move |event| say(event).expect("the parent reads"));
    let pulled = engine.pull_image(PullImageRequest { progress, ..PullImageRequest::new(name) }).await;
    unreachable!("killed before: {pulled:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_fetched_before_a_kill_are_not_fetched_again() {
    for (format, keep_blobs) in [(FORMATS[0], false), (FORMATS[1], false), (FORMATS[0], true)] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let registry = TestRegistry::open().await;
        let image = push(&registry);
        let word = if format == LayerFormat::Erofs { "erofs" } else { "dir" };
        let name = format!("{}/app:v1 {word}{}", registry.host(), if keep_blobs { " keep" } else { "" });
        let root = directory.path().to_owned();
        let (first, second) = (blob(&image, 0).to_string(), blob(&image, 1).to_string());
        let killed = tokio::task::spawn_blocking(move || {
            let program = std::env::current_exe().expect("a test is a program");
            #[expect(clippy::disallowed_methods, reason = "a kill needs a process of its own")]
            let mut child = Command::new(program)
                .args(["resuming::child", "--exact", "--ignored", "--nocapture"])
                .env(ROOT, &root)
                .env(NAME, name)
                .stdout(Stdio::piped())
                .spawn()
                .expect("starts");
            let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
            let (mut whole, mut far) = (false, 0_u64);
            while !(whole && far + NEAR as u64 > CUT as u64) {
                let line = lines.next().expect("it goes on").expect("readable");
                let words: Vec<&str> = line.split("STEP ").nth(1).unwrap_or_default().split(' ').collect();
                match words.as_slice() {
                    ["done", digest] if *digest == first => whole = true,
                    ["bytes", digest, done] if *digest == second => far = done.parse().expect("a number"),
                    _ => {}
                }
            }
            child.kill().expect("kills");
            child.wait().expect("is gone");
        });
        killed.await.expect("no panic");
        registry.release_what_was_given_up().await;
        registry.clear_requests();
        let options = EngineOptions { keep_blobs, ..keeping(directory.path(), Resume::Always, format) };
        let engine = Engine::open(options).await.expect("opens");
        let node = Node { engine, registry, directory };
        // Another image that has the whole layer, too.
        let other = crate::support::image().layer(layer("a/x", 1, FIRST)).build();
        node.registry.push("other", "v1", &other);
        node.pull("other:v1").await.expect("pulls");
        assert_eq!(node.asked_for(&blob(&image, 0)), ["HEAD other"], "it was whole");
        ready(&node, &image).await;
        let all = image.layers.iter().map(|layer| layer.descriptor.size).sum::<u64>();
        assert!(node.registry.bytes_sent() < all + SLACK_OF_A_KILL, "{} of {all}", node.registry.bytes_sent());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_changed_meanwhile_is_fetched_again() {
    for format in FORMATS {
        let node = start(Resume::Always, format).await;
        let image = push(&node.registry);
        pull_in_part(&node, &image).await;
        node.engine.shutdown().await;
        let ingest = node.directory.path().join("store/ingest");
        for name in node.entries("ingest").iter().filter(|name| !name.contains('.')) {
            let path = ingest.join(name);
            let path = match path.join("layer.erofs") {
                _ if path.is_file() => path,
                erofs if erofs.exists() => erofs,
                _ => path.join("fs/a/x"),
            };
            let file = std::fs::OpenOptions::new().write(true).open(path).expect("opens");
            file.write_all_at(b"!!", 1_000_000).expect("writes");
        }
        let node = restart(node, Resume::Always, format).await;
        node.registry.release_what_was_given_up().await;
        node.registry.clear_requests();
        ready(&node, &image).await;
        assert_eq!(ranges(&node, &blob(&image, 0)), ["-"], "of the layer nothing is believed");
        let asked = ranges(&node, &blob(&image, 1));
        let at = from(&asked[0]);
        assert!(asked.len() == 1 && (500_000..=1_000_000).contains(&at), "up to the piece that is wrong: {asked:?}");
    }
}

/// A kill may come when a layer is noted as whole, and what was written down of its blob is not yet gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_partial_blob_is_removed_with_its_whole_layer() {
    let node = start(Resume::Always, LayerFormat::Dir).await;
    let image = push(&node.registry);
    pull_in_part(&node, &image).await;
    let node = restart(node, Resume::Always, LayerFormat::Dir).await;
    node.registry.release_what_was_given_up().await;
    let layer = &image.layers[0].descriptor;
    let mut spool = node.engine.store().new_spool(&layer.digest, layer.size, 0, &origin(&node)).expect("creates");
    spool.append([[7_u8; 1000].as_slice()]).expect("writes");
    spool.leave();
    let left = node.engine.store().unfinished();
    assert_eq!((left.layers, left.blobs), (1, 2));
    ready(&node, &image).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_that_are_kept_are_left_when_they_are_whole() {
    // Including blobs that arrived over a fast connection, which are not saved separately.
    for (damaged, resume) in [(false, Resume::Auto), (false, Resume::Always), (true, Resume::Auto)] {
        let node = Node::with(|options| (options.resume, options.keep_blobs) = (resume, true)).await;
        let plain = layer("a/x", 1, FIRST).plain();
        let image = image().layer(layer("c/z", 3, FIRST)).layer(plain).layer(layer("b/y", 2, SECOND)).build();
        node.registry.push("app", "v1", &image);
        let last = blob(&image, 2);
        node.registry.faults().once(&format!("/blobs/{last}"), Fault::HangAfter { after: CUT });
        let (pull, watch) = node.start_pull("app:v1");
        watch.until_layer(&blob(&image, 0), LayerState::Done).await;
        watch.until_layer(&blob(&image, 1), LayerState::Done).await;
        pull.abort();
        let _ = pull.await;
        let Node { engine, registry, directory } = node;
        engine.shutdown().await;
        drop(engine);
        if damaged {
            let ingest = directory.path().join("store/ingest");
            let entries = std::fs::read_dir(&ingest).expect("there").map(|entry| entry.expect("an entry").path());
            let size = image.layers[0].descriptor.size;
            let whole =
                entries.filter(|path| path.metadata().is_ok_and(|about| about.is_file() && about.len() == size));
            let file = whole.map(|path| std::fs::OpenOptions::new().write(true).open(path).expect("opens"));
            assert_eq!(file.map(|file| file.write_all_at(b"!!", 1_000_000).expect("writes")).count(), 1);
        }
        let options = EngineOptions { keep_blobs: true, ..keeping(directory.path(), resume, LayerFormat::Dir) };
        let engine = Engine::open(options).await.expect("opens");
        let node = Node { engine, registry, directory };
        let left = node.engine.store().unfinished();
        // And the bytes of the last one, if they were saved.
        assert!(left.layers == 1 && (1..=2).contains(&left.blobs), "{left:?}");
        node.registry.release_what_was_given_up().await;
        node.registry.clear_requests();
        let id = node.pull("app:v1").await.expect("pulls");
        assert_eq!(id, image.id().to_string());
        let (packed, plain) = (ranges(&node, &blob(&image, 0)), ranges(&node, &blob(&image, 1)));
        // A damaged one leaves nothing that a later pull would use.
        let want: &[&str] = if damaged { &["-"] } else { &[] };
        assert_eq!((packed.iter().map(String::as_str).collect::<Vec<_>>().as_slice(), plain.len()), (want, 0));
        assert_eq!(node.engine.store().totals().expect("totals").blobs, 2, "those that are no streams themselves");
        node.check_clean().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_bytes_with_right_sums_end_with_the_digest() {
    let node = start(Resume::Always, LayerFormat::Dir).await;
    let image = push_whole(&node.registry);
    let layer = &image.layers[1].descriptor;
    let mut spool = node.engine.store().new_spool(&layer.digest, layer.size, 0, &origin(&node)).expect("creates");
    spool.append([[7_u8; 1_000_000].as_slice()]).expect("writes");
    spool.leave();
    let id = node.pull("app:v1").await.expect("what is right is fetched");
    assert_eq!(id, image.id().to_string());
    check(&node).await;
    assert!(ranges(&node, &layer.digest).contains(&"bytes=1000000-".to_owned()), "it was tried");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_without_ranges_costs_bytes_and_nothing_else() {
    let node = start(Resume::Always, LayerFormat::Dir).await;
    let image = push(&node.registry);
    pull_in_part(&node, &image).await;
    let node = restart(node, Resume::Always, LayerFormat::Dir).await;
    node.registry.release_what_was_given_up().await;
    node.registry.faults().always(&format!("/blobs/{}", blob(&image, 1)), Fault::IgnoreRange);
    ready(&node, &image).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_line_is_noticed_by_itself() {
    let node = start(Resume::Auto, LayerFormat::Dir).await;
    let image = push_whole(&node.registry);
    // The whole would take six seconds.
    node.registry.set_line(Line { rate: Some(1_000_000), ..Line::default() });
    let (pull, watch) = node.start_pull("app:v1");
    let spooled = || {
        let names = node.entries("ingest");
        let sums = names.into_iter().find(|name| name.ends_with(".sums"));
        sums.is_some_and(|name| {
            let path = node.directory.path().join("store/ingest").join(name);
            std::fs::read_to_string(path).is_ok_and(|text| text.lines().count() > 2)
        })
    };
    while !spooled() {
        watch.next().await;
    }
    pull.abort();
    let _ = pull.await;
    let node = restart(node, Resume::Auto, LayerFormat::Dir).await;
    node.registry.set_line(Line::default());
    node.registry.clear_requests();
    ready(&node, &image).await;
    let asked = ranges(&node, &blob(&image, 1));
    assert!(asked.iter().any(|range| range.starts_with("bytes=")), "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_and_failed_pulls_leave_resumable_content() {
    let node = start(Resume::Always, LayerFormat::Dir).await;
    let image = push(&node.registry);
    let second = blob(&image, 1);
    let (pull, watch) = node.start_pull("app:v1");
    watch
        .until(|event| matches!(event, PullEvent::Bytes { digest, done } if *digest == second && *done > 4_000_000))
        .await;
    watch.until_layer(&blob(&image, 0), LayerState::Done).await;
    pull.abort();
    assert!(pull.await.is_err());
    node.engine.settled().await;
    let left = node.engine.store().unfinished();
    assert_eq!((left.layers, left.blobs), (1, 1));
    node.registry.release_what_was_given_up().await;
    // The rest of it is refused for now.
    let refused = Fault::Status { code: 503, headers: Vec::new(), body: String::new() };
    node.registry.faults().times(&format!("/blobs/{second}"), 3, refused);
    node.pull("app:v1").await.expect_err("the registry fails");
    node.engine.settled().await;
    let left = node.engine.store().unfinished();
    assert_eq!((left.layers, left.blobs), (1, 1), "as before");
    node.registry.clear_requests();
    ready(&node, &image).await;
    assert_eq!(ranges(&node, &blob(&image, 0)), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_what_was_wrong_nor_where_it_is_not_wanted() {
    let node = start(Resume::Always, LayerFormat::Dir).await;
    let image = push_whole(&node.registry);
    node.registry.faults().always(&format!("/blobs/{}", blob(&image, 1)), Fault::Corrupt);
    node.pull("app:v1").await.expect_err("damaged");
    node.check_clean().await;

    let node = start(Resume::Off, LayerFormat::Dir).await;
    let image = push(&node.registry);
    pull_in_part(&node, &image).await;
    let node = restart(node, Resume::Off, LayerFormat::Dir).await;
    node.check_clean().await;
    node.registry.release_what_was_given_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leftovers_are_kept_for_a_day_or_removed_on_request() {
    let node = start(Resume::Always, LayerFormat::Dir).await;
    let image = push(&node.registry);
    pull_in_part(&node, &image).await;
    let mut node = restart(node, Resume::Always, LayerFormat::Dir).await;
    assert_eq!(node.engine.drop_unfinished_pulls(false).await.expect("goes"), 0, "it is young");
    let left = node.engine.unfinished_pulls().await.expect("known");
    assert_eq!(node.engine.drop_unfinished_pulls(true).await.expect("goes"), left.bytes);
    node.check_clean().await;
    node.registry.release_what_was_given_up().await;

    node.registry.faults().once(&format!("/blobs/{}", blob(&image, 1)), Fault::HangAfter { after: CUT });
    pull_in_part(&node, &image).await;
    node.engine.shutdown().await;
    let directory = node.directory.path().to_owned();
    let now = (keeping(&directory, Resume::Always, LayerFormat::Dir).clock)();
    let Node { engine, registry, directory } = node;
    drop(engine);
    let late = Arc::new(move || now + 25 * 3600 * 1_000_000_000);
    let late = EngineOptions { clock: late, ..keeping(directory.path(), Resume::Always, LayerFormat::Dir) };
    node = Node { engine: Engine::open(late).await.expect("opens"), registry, directory };
    node.check_clean().await;
    node.registry.release_what_was_given_up().await;
}

/// Bytes that could not be written may be in memory all the same, where another process finds them: it does not believe them.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: scripts/test.sh"]
async fn after_a_failed_sync_no_whole_layer_is_resumed() {
    let disk = testdisk::Disk::new(testdisk::Kind::Ext4, 96 << 20).expect("a disk: this test needs root");
    let mounted = disk.mount().expect("mounts");
    let registry = TestRegistry::open().await;
    let image = push_whole(&registry);
    let begin = async || {
        let mut options = keeping(mounted.path(), Resume::Always, LayerFormat::Erofs);
        options.store.durability = store::Durability::Full;
        Engine::open(options).await.expect("opens")
    };
    let engine = begin().await;
    let name = format!("{}/app:v1", registry.host());
    // The first bytes that the sync has written are those of files.
    disk.fail(testdisk::Fault::of(testdisk::Op::Write, testdisk::EIO).times(1)).expect("is told");
    let error = engine.pull_image(PullImageRequest::new(&name)).await.expect_err("it is not on the disk");
    assert!(error.to_string().contains("sync"), "{error}");
    engine.settled().await;
    assert_eq!(engine.store().unfinished().layers, 0);
    engine.shutdown().await;
    drop(engine);
    disk.heal().expect("is told");
    registry.clear_requests();
    let engine = begin().await;
    engine.pull_image(PullImageRequest::new(&name)).await.expect("pulls");
    for layer in &image.layers {
        let asked = registry.requests_for(&format!("/blobs/{}", layer.descriptor.digest));
        assert!(!asked.is_empty(), "nothing is believed of {}", layer.descriptor.digest);
    }
    engine.shutdown().await;
}
