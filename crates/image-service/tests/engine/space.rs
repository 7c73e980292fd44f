//! Disks that are too small: a pull that cannot fit is refused before a layer is fetched, and the error has the
//! numbers.
#![expect(clippy::disallowed_methods, reason = "a small disk is mounted by the machine's own tools")]

use std::path::{Path, PathBuf};
use std::process::Command;

use cri_api::{ImageService as _, Kind, LayerState, PullEvent};
use oci::Descriptor;
use registry::testing::Fault;

use crate::support::{Node, blob, image, layer, noise};

/// A small file system, mounted while this lives.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(mebibytes: u64) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        run("mount", &["-t", "tmpfs", "-o", &format!("size={mebibytes}m"), "none"], directory.path());
        Self(directory)
    }

    fn store(&self) -> PathBuf {
        self.0.path().join("store")
    }
}

/// A disk with much space, of which the store may have so much: a limit of a subvolume, which `statfs` does not report.
struct Quota(tempfile::TempDir);

impl Quota {
    fn new(mebibytes: u64) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let disk = directory.path().join("disk");
        std::fs::File::create(&disk).and_then(|file| file.set_len(192 << 20)).expect("makes");
        run("mkfs.btrfs", &["-q"], &disk);
        let (mount, part) = (directory.path().join("mount"), directory.path().join("mount/part"));
        std::fs::create_dir(&mount).expect("creates");
        run("mount", &["-o", "loop", disk.to_str().expect("UTF-8")], &mount);
        run("btrfs", &["-q", "quota", "enable"], &mount);
        run("btrfs", &["-q", "subvolume", "create"], &part);
        run("btrfs", &["-q", "qgroup", "limit", &format!("{mebibytes}M")], &part);
        Self(directory)
    }

    fn store(&self) -> PathBuf {
        self.0.path().join("mount/part/store")
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        run("umount", &["-l"], &self.0.path().join("mount"));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        run("umount", &["-l"], self.0.path());
    }
}

fn run(program: &str, arguments: &[&str], path: &Path) {
    let status = Command::new(program).args(arguments).arg(path).status();
    assert!(status.as_ref().is_ok_and(|s| s.success()), "{program} {arguments:?}: {status:?}; this test needs root");
}

/// A reserve that a small disk has room for.
fn small_reserve(options: &mut image_service::EngineOptions) {
    options.store.reserve_bytes = 1 << 20;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_disk_has_room_for_is_not_fetched() {
    let node = Node::start().await;
    let mut big = layer("a/x", 1, 1000).build();
    big.descriptor = Descriptor { size: 1 << 60, ..big.descriptor };
    let image = image().layer(layer("b/y", 2, 1000)).layer(big).build();
    node.registry.push("big", "v1", &image);
    let error = node.pull("big:v1").await.expect_err("refused");
    assert_eq!((error.kind(), error.retry_after()), (Kind::ResourceExhausted, None), "{error}");
    let needed = (1_u64 << 60) + image.layers[0].descriptor.size;
    assert_eq!(error.needed_bytes(), Some(needed));
    let root = node.engine.store().root().display().to_string();
    for word in [&node.name("big:v1"), "1.15EB are needed, ", &root, " are free", "no space left on the file system"] {
        assert!(error.message().contains(word), "{error} has no {word:?}");
    }
    for n in [0, 1] {
        assert_eq!(node.registry.requests_for(&blob(&image, n).to_string()).len(), 0, "layer {n} was asked for");
    }
    node.check_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: scripts/test.sh"]
async fn layers_that_are_here_need_no_room() {
    let disk = SmallDisk::new(16);
    let node = Node::with(|options| {
        options.root = disk.store();
        small_reserve(options);
    })
    .await;
    let base = layer("a/x", 1, 9 << 20).build();
    let first = image().layer(base.clone()).build();
    node.registry.push("first", "v1", &first);
    node.pull("first:v1").await.expect("fits");
    // Nine more would not fit; but this repository has provided the layers, even though by another blob.
    let again = registry::testing::LayerBuilder::from_blob(
        base.tar.to_vec(),
        base.diff_id.clone(),
        registry::testing::Compression::Plain,
    );
    let second = image().layer(again).layer(layer("b/y", 2, 1000)).label("n", "2").build();
    node.registry.push("first", "v2", &second);
    node.pull("first:v2").await.expect("needs next to nothing");
    assert_eq!(node.registry.requests_for(&blob(&second, 0).to_string()).len(), 0, "it is here by its diff id");
    let third = image().layer(base).layer(layer("b/z", 3, 9 << 20).plain()).build();
    node.registry.push("third", "v1", &third);
    let error = node.pull("third:v1").await.expect_err("does not fit");
    assert!(error.message().contains("no space left on the file system of"), "{error}");
    assert_eq!(node.registry.requests_for(&blob(&third, 1).to_string()).len(), 0);
    drop(node);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: scripts/test.sh"]
async fn pulls_in_flight_count() {
    let disk = SmallDisk::new(24);
    let node = Node::with(|options| {
        options.root = disk.store();
        small_reserve(options);
    })
    .await;
    let one = image().layer(layer("a/x", 1, 10 << 20).plain()).build();
    let two = image().layer(layer("b/y", 2, 14 << 20).plain()).build();
    let small = image().layer(layer("c/z", 3, 1 << 20)).build();
    for (name, image) in [("one", &one), ("two", &two), ("small", &small)] {
        node.registry.push(name, "v1", image);
    }
    node.registry.faults().once(&format!("/blobs/{}", blob(&one, 0)), Fault::HangAfter { after: 1 << 20 });
    let (first, watch) = node.start_pull("one:v1");
    watch.until(|event| matches!(event, PullEvent::Bytes { .. })).await;
    let error = node.pull("two:v1").await.expect_err("not beside the other one");
    assert_eq!(error.kind(), Kind::ResourceExhausted);
    assert!(error.message().contains(" are needed for this pull and those in progress, "), "{error}");
    assert_eq!(node.registry.requests_for(&blob(&two, 0).to_string()).len(), 0);
    node.pull("small:v1").await.expect("there is room for a small one");
    first.abort();
    assert!(first.await.expect_err("aborted").is_cancelled());
    node.engine.settled().await;
    node.pull("two:v1").await.expect("what was promised is given back");
    drop(node);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: scripts/test.sh"]
async fn what_runs_out_of_space_leaves_nothing_and_tells_what_it_needs() {
    let disk = SmallDisk::new(24);
    let node = Node::with(|options| {
        options.root = disk.store();
        small_reserve(options);
    })
    .await;
    let kept = image().layer(layer("k/x", 1, 1 << 20)).build();
    node.registry.push("kept", "v1", &kept);
    node.pull("kept:v1").await.expect("fits");
    // Small blobs that unpack to forty MiB each, so that nothing shows their size beforehand; and one that is fetched
    // at the same time.
    let mut big = image().layer(layer("a/x", 2, 100_000));
    for number in 0..2 {
        let content = [noise(number, 20_000), vec![7; 40 << 20]].concat();
        big = big.layer(registry::testing::LayerBuilder::new().file(&format!("zeros{number}"), content).zstd());
    }
    let big = big.build();
    node.registry.push("big", "v1", &big);
    let error = node.pull("big:v1").await.expect_err("does not fit");
    // At once, and not only at the next check.
    let left: Vec<_> = std::fs::read_dir(disk.store().join("ingest")).expect("a directory").collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(std::fs::read_dir(disk.store().join("layers")).expect("a directory").count(), 1);
    let free = node.engine.store().room().expect("asks").expect("says");
    assert!(free > 18 << 20, "all of it is free again: {free}");
    let needed = error.needed_bytes().expect("says how much");
    assert!(needed > free && needed < 120 << 20, "{needed} of {free}");
    let numbers = [format!("{} are needed", base::units::bytes(needed)), " were free".to_owned()];
    for word in numbers.iter().map(String::as_str).chain(["no space left on the file system of"]) {
        assert!(error.message().contains(word), "{error} has no {word:?}");
    }
    assert_eq!(error.kind(), Kind::ResourceExhausted);
    assert!(node.status("kept:v1").await.is_some());
    drop(node);
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_fetching_and_long_unpacking_are_reported() {
    let node = Node::start().await;
    // Sixty-four MiB of the same bytes: a blob of a few hundred KiB.
    let base = registry::testing::LayerBuilder::new().file("zeros", vec![7; 64 << 20]).zstd().build();
    let slow = layer("a/x", 1, 100_000).build();
    let image = image().layer(base).layer(slow).build();
    node.registry.push("app", "v1", &image);
    let pause = std::time::Duration::from_millis(60);
    node.registry.faults().once(&format!("/blobs/{}", blob(&image, 1)), Fault::Drip { piece: 10_000, pause });
    let (pull, watch) = node.start_pull("app:v1");
    pull.await.expect("no panic").expect("pulls");
    let events = watch.events();
    let (big, slow) = (blob(&image, 0), blob(&image, 1));
    let unpacked: Vec<u64> = events
        .iter()
        .filter_map(|event| match event {
            PullEvent::Unpacked { digest, done } if *digest == big => Some(*done),
            _ => None,
        })
        .collect();
    assert!(unpacked.len() >= 7 && unpacked.is_sorted(), "{unpacked:?}");
    let bytes = events.iter().filter(|e| matches!(e, PullEvent::Bytes { digest, .. } if *digest == slow)).count();
    assert!(bytes >= 2, "a hundred thousand bytes in six tenths of a second are told {bytes} times");
    let last = |wanted: &PullEvent| events.iter().rposition(|event| event == wanted);
    let unpacking = last(&PullEvent::Layer { digest: big.clone(), state: LayerState::Unpacking });
    assert!(unpacking < last(&PullEvent::Layer { digest: big, state: LayerState::Done }));
    assert_eq!(node.file(image.id().to_string().as_str(), "a/x"), Some(noise(1, 100_000)));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: scripts/test.sh"]
async fn a_quota_on_a_disk_with_space_is_named_and_what_is_needed_must_come_free() {
    for format in [store::LayerFormat::Dir, store::LayerFormat::Erofs] {
        let disk = Quota::new(32);
        let node = Node::with(|options| {
            options.root = disk.store();
            options.store.layer_format = format;
            options.store.durability = store::Durability::Full;
            small_reserve(options);
        })
        .await;
        let kept = image().layer(layer("a/x", 1, 20 << 20).plain()).build();
        node.registry.push("kept", "v1", &kept);
        let id = node.pull("kept:v1").await.expect("fits");
        let free = node.engine.store().room().expect("asks").expect("says");
        assert!(free > 64 << 20, "the disk has room: {free}");
        let big = image().layer(layer("b/y", 2, 24 << 20).plain()).build();
        node.registry.push("big", "v1", &big);
        let error = node.pull("big:v1").await.expect_err("does not fit");
        assert_eq!(error.kind(), Kind::ResourceExhausted, "{error}");
        let root = disk.store().display().to_string();
        for words in [&format!("no space left on the file system of {root} (a quota is used up): "), " are needed"] {
            assert!(error.message().contains(words), "{error} has no {words:?}");
        }
        assert!(!error.message().contains("were free"), "{error}");
        // Relative to the present free space: garbage collection then frees what is needed, and not what the disk would
        // have to spare.
        let needed = error.needed_bytes().expect("says how much");
        assert!(needed > free + (24 << 20) && needed < free + (48 << 20), "{needed} beside {free}");
        node.engine.settled().await;
        let left = std::fs::read_dir(disk.store().join("ingest")).expect("a directory").count();
        assert_eq!(left, 0, "of what failed nothing stays");
        assert!(node.status("kept:v1").await.is_some());
        node.engine.remove_image(&cri_api::ImageSpec::new(&id)).await.expect("removes");
        node.pull("big:v1").await.expect("fits now");
    }
}
