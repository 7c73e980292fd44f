//! A disk that is too small: a clear error, a store as it was, and removal that works with no byte free.

use std::fs;

use super::FORMAT;
use crate::support::disk::{Foreign, LoopFs, free};
use crate::support::process::eventually;
use crate::support::random::noise;
use crate::support::scene::Scene;
use crate::support::{Imagelet, Packing};

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_pull_that_does_not_fit_leaves_the_store_as_it_was() {
    let s = Scene::shaped(FORMAT);
    let disk = LoopFs::ext4(64).mount(&s.scratch, "small");
    let imagelet = Imagelet::shaped(FORMAT, &disk.join("store"));
    let (small, kept) = s.push_file("disk/small:1", "a", "small");
    // Seventy-five MiB that a few hundred KiB stand for: the size is not known before the unpacking.
    let (big, _) = s.push_file("disk/big:1", "same", "the same again\n".repeat(5 << 20));
    imagelet.ok(&["pull", &small]);
    let before = free(&disk);
    let said = imagelet.fails(1, &["pull", &big]);
    assert!(said.contains("disk/big:1") && said.to_lowercase().contains("no space left"), "{said}");
    assert_eq!(imagelet.ids(), [kept.id]);
    let after = free(&disk);
    assert!(
        before.0.abs_diff(after.0) < (1 << 20) && before.1.abs_diff(after.1) < 16,
        "free before {before:?}, after {after:?}"
    );
    let mounted = imagelet.mount(&small, s.scratch.join("mnt"));
    assert_eq!(fs::read_to_string(mounted.join("a")).expect("a file"), "small");
    imagelet.ok(&["unmount", &mounted.display().to_string()]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_pull_that_cannot_fit_fetches_nothing() {
    let s = Scene::shaped(FORMAT);
    let disk = LoopFs::ext4(64).mount(&s.scratch, "small");
    let imagelet = Imagelet::shaped(FORMAT, &disk.join("store"));
    let image = s.layout.image(&[s.file_layer("noise", noise(80 << 20), Packing::Plain)]);
    let big = s.registry.push(&s.layout, &image, "disk/big:1");
    let said = imagelet.fails(1, &["pull", &big]);
    let root = disk.join("store").display().to_string();
    for word in [big.as_str(), "no space left", "83.9MB are needed, ", " are free", &root] {
        assert!(said.contains(word), "{said} has no {word:?}");
    }
    let layer = image.blobs[0].digest.to_string();
    assert!(!s.registry.requests().iter().any(|r| r.contains(&layer)), "{:?}", s.registry.requests());
    assert_eq!(imagelet.ids(), Vec::<String>::new());
}

/// The resource that a disk runs out of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    OfBytes,
    OfInodes,
}

fn removal_works(disk: LoopFs, full: Full) {
    let s = Scene::shaped(FORMAT);
    let disk = disk.mount(&s.scratch, "full");
    let imagelet = Imagelet::shaped(FORMAT, &disk.join("store"));
    let (name, _) = s.push_file("disk/image:1", "noise", noise(20 << 20));
    imagelet.ok(&["pull", &name]);
    let foreign = match full {
        Full::OfBytes => Foreign::leaving(&disk, 0),
        Full::OfInodes => Foreign::leaving_inodes(&disk, 0),
    };
    imagelet.ok(&["rmi", &name]);
    assert_eq!(imagelet.ids(), Vec::<String>::new());
    match full {
        Full::OfBytes => assert!(free(&disk).0 > 15 << 20, "the layer's bytes are free again: {:?}", free(&disk)),
        // XFS gives them back in the background.
        Full::OfInodes => eventually("the layer's inodes are free again", || free(&disk).1 > 1),
    }
    // A pull needs room for its records as well; an operator finds some.
    foreign.remove();
    imagelet.ok(&["pull", &name]);
    assert_eq!(imagelet.ids().len(), 1, "and can be used again");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn removal_works_on_an_ext4_with_no_byte_free() {
    removal_works(LoopFs::ext4(64), Full::OfBytes);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn removal_works_on_an_xfs_with_no_byte_free() {
    removal_works(LoopFs::xfs(320), Full::OfBytes);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn removal_works_on_an_ext4_with_no_inode_free() {
    removal_works(LoopFs::ext4(64).inodes(500), Full::OfInodes);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn removal_works_on_an_xfs_with_no_inode_free() {
    removal_works(LoopFs::xfs(320).inodes(2000), Full::OfInodes);
}
