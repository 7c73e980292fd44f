//! A disk that is too small: a clear error, a store as it was, and removal that works with no byte free.

use std::fs;
use std::io::Write as _;

use crate::support::disk::{ext4, free};
use crate::support::scene::Scene;
use crate::support::{Imagelet, Packing};

/// Bytes that no compressor makes smaller, the same every time.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

#[test]
fn a_pull_that_does_not_fit_leaves_the_store_as_it_was() {
    let s = Scene::new();
    let disk = ext4(&s.scratch, "small", 64);
    let imagelet = Imagelet::on(&disk.join("store"));
    let (small, kept) = s.push_file("disk/small:1", "a", "small");
    // Seventy-five MiB that a few hundred KiB stand for: nothing tells beforehand that it is too much.
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
fn a_pull_that_cannot_fit_fetches_nothing() {
    let s = Scene::new();
    let disk = ext4(&s.scratch, "small", 64);
    let imagelet = Imagelet::on(&disk.join("store"));
    let image = s.layout.image(&[s.file_layer("noise", noise(80 << 20), Packing::Plain)]);
    let big = s.registry.push(&s.layout, &image, "disk/big:1");
    let said = imagelet.fails(1, &["pull", &big]);
    let needed = image.blobs[0].size.to_string();
    let root = disk.join("store").display().to_string();
    for word in [big.as_str(), "no space left", &needed, &root] {
        assert!(said.contains(word), "{said} has no {word:?}");
    }
    let layer = image.blobs[0].digest.to_string();
    assert!(!s.registry.requests().iter().any(|r| r.contains(&layer)), "{:?}", s.registry.requests());
    assert_eq!(imagelet.ids(), Vec::<String>::new());
}

#[test]
fn removal_works_on_a_disk_with_no_byte_free() {
    let s = Scene::new();
    let disk = ext4(&s.scratch, "full", 64);
    let imagelet = Imagelet::on(&disk.join("store"));
    let (name, _) = s.push_file("disk/image:1", "noise", noise(20 << 20));
    imagelet.ok(&["pull", &name]);
    let mut filler = fs::File::create(disk.join("filler")).expect("create a file");
    for size in [1 << 20, 4096, 1] {
        while filler.write(&vec![7_u8; size]).is_ok() {}
    }
    drop(filler);
    assert_eq!(free(&disk).0, 0, "the disk is full");
    imagelet.ok(&["rmi", &name]);
    assert_eq!(imagelet.ids(), Vec::<String>::new());
    assert!(free(&disk).0 > 15 << 20, "the layer's bytes are free again: {:?}", free(&disk));
    // A pull needs room for its records as well; an operator finds some.
    fs::remove_file(disk.join("filler")).expect("remove a file");
    imagelet.ok(&["pull", &name]);
    assert_eq!(imagelet.ids().len(), 1, "and can be used again");
}
