//! A disk of containerd that is full at one step or another: the error says so, nothing is left, and with space the pull succeeds.

use super::{Harbour, differences};
use crate::support::Packing;
use crate::support::cli::are_files;
use crate::support::disk::{Foreign, LoopFs, free};
use crate::support::images;
use crate::support::process::eventually;
use crate::support::scene::Scene;

/// Free bytes at which a pull is tried.
const SIZES: [u64; 11] =
    [0, 16 << 10, 64 << 10, 200 << 10, 500 << 10, 1 << 20, 3 << 20, 6 << 20, 9 << 20, 11 << 20, 13 << 20];

/// Layers whose unpacked size is not known beforehand.
fn swelling(h: &Harbour, count: usize) -> Vec<images::Layer> {
    let layer = |number: usize| {
        let line = format!("layer {number} has this line again and again\n");
        h.s.file_layer(&format!("opt/big{number}"), line.repeat((2 << 20) / line.len()), Packing::Gzip)
    };
    (0..count).map(layer).collect()
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_pull_that_does_not_fit_leaves_containerd_as_it_was() {
    let h = Harbour::new(64);
    let layers = swelling(&h, 6);
    let (kept, big) = (h.push("full/kept:1", &layers[..1]), h.push("full/big:1", &layers));
    h.plain.ok(&["pull", &kept.name]);
    let (before, there) = (free(&h.disk), h.committed());
    let mut failed = 0;
    for size in SIZES {
        let context = format!("{size} bytes free");
        let foreign = Foreign::leaving(&h.disk, size);
        let done = h.imagelet.run(&["pull", &big.name]);
        foreign.remove();
        if done.code == Some(0) {
            h.plain.ok(&["rmi", &big.name]);
        } else {
            failed += 1;
            let said = done.fails(1, &["pull"]);
            assert!(said.contains("full/big:1") && said.to_lowercase().contains("no space left"), "{context}: {said}");
            assert!(!h.visible().contains(&big.name), "{context}");
        }
        eventually(&format!("{context}: snapshots as before: {:?}", h.snapshots()), || h.committed() == there);
        h.nothing_on_the_way(&context);
        let after = free(&h.disk);
        // The databases, which never become smaller.
        assert!(before.0.saturating_sub(after.0) < (3 << 20), "{context}: free before {before:?}, after {after:?}");
    }
    assert!(failed >= SIZES.len() - 2, "only {failed} of {} pulls failed", SIZES.len());
    h.imagelet.ok(&["pull", &big.name]);
    let good = h.tree(&big.name);
    h.empty("at the end");
    h.plain.ok(&["pull", &big.name]);
    assert_eq!(differences(&h.tree(&big.name), &good), Vec::<String>::new());
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_disk_without_inodes_is_named_as_a_full_one() {
    let s = Scene::new();
    let disk = LoopFs::ext4(64).inodes(2000).mount(&s.scratch, "disk");
    let h = Harbour::on(s, disk);
    let layers = h.layers("inodes", 6, 1000);
    let (kept, app) = (h.push("full/few:1", &layers[..1]), h.push("full/inodes:1", &layers));
    let imagelet = &h.imagelet;
    // containerd 2 remembers until its end that it could not make the directory of its first blob.
    imagelet.ok(&["pull", &kept.name]);
    // A layer that is a file needs few.
    let few = if are_files() { [0, 5, 10, 15] } else { [0, 15, 30, 45] };
    for inodes in few {
        let context = format!("{inodes} inodes free");
        let foreign = Foreign::leaving_inodes(&h.disk, inodes);
        let done = imagelet.run(&["pull", &app.name]);
        foreign.remove();
        let said = done.fails(1, &["pull"]);
        assert!(said.contains("full/inodes:1") && said.to_lowercase().contains("no space left"), "{context}: {said}");
        assert!(!h.visible().contains(&app.name), "{context}");
        h.nothing_on_the_way(&context);
    }
    imagelet.ok(&["pull", &app.name]);
    h.empty("at the end");
}
