//! The content that a removal takes, what it leaves, and what it gives back.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;

use imagelet_store::{ImageCommit, LayerSource, Removed, Store};
use oci::{Digest, chain_id};
use proptest::prelude::*;

use super::support::{Image, Tar, check_accounts, list, measure, open, plain_layer};

fn store() -> (tempfile::TempDir, Store) {
    let top = tempfile::tempdir().expect("tempdir");
    let store = open(&top.path().join("store"));
    (top, store)
}

#[test]
fn removal_deletes_everything_and_counts_it() {
    let (_top, store) = store();
    let image = Image::new("one", &[plain_layer("a", &[1; 100_000]), plain_layer("b", b"bbb")]);
    let record = image.pull(&store, "docker.io/library/a:1");
    image.pull(&store, "quay.io/x/a:1");
    let (bytes, inodes) = measure(&store.root().join("layers"));
    let (own_bytes, own_inodes) = (
        std::fs::metadata(store.root().join("layers"))
            .map(|m| std::os::unix::fs::MetadataExt::blocks(&m) * 512)
            .expect("there"),
        1,
    );
    let removed = store.remove_image(&record.id).expect("removes");
    assert_eq!(removed, Removed { freed_bytes: bytes - own_bytes, freed_inodes: inodes - own_inodes });
    assert!(store.images().expect("readable").is_empty());
    assert!(list(&store.root().join("layers")).is_empty());
    for name in ["a:1", "quay.io/x/a:1", &image.repo_digest("quay.io/x/a")] {
        assert!(store.resolve(&name.into()).expect("resolves").is_none(), "{name}");
    }
    assert_eq!(store.totals().expect("readable"), imagelet_store::Totals::default());
    check_accounts(&store);
    assert_eq!(store.remove_image(&record.id).expect("absent is fine"), Removed::default());
    assert_eq!(store.remove_image(&Digest::sha256(b"never")).expect("absent is fine"), Removed::default());
}

#[test]
fn shared_layers_stay_until_the_last_image_is_removed() {
    let (_top, store) = store();
    let base = plain_layer("base", &[1; 50_000]);
    let one = Image::new("one", &[base.clone(), plain_layer("one", b"1")]).pull(&store, "docker.io/library/a:1");
    let two = Image::new("two", &[base, plain_layer("two", b"2")]).pull(&store, "docker.io/library/b:1");
    let removed = store.remove_image(&one.id).expect("removes");
    assert!(removed.freed_bytes < 50_000, "{removed:?}");
    assert!(store.image_is_whole(&two));
    assert_eq!(store.usage(&two.id).expect("readable"), Some((two.size, 0)));
    check_accounts(&store);
    assert!(store.remove_image(&two.id).expect("removes").freed_bytes > 50_000);
    check_accounts(&store);
}

#[test]
fn odd_files_are_no_obstacle() {
    let (_top, store) = store();
    let odd = Tar::default()
        .directory("./", 0o755)
        .directory("closed/", 0o000)
        .file("closed/f", b"x")
        .file(".wh.gone", b"")
        .directory("hiding/", 0o755)
        .file("hiding/.wh..wh..opq", b"")
        .symlink("out", "/etc")
        .symlink("hiding/out", "../../../../../../etc/passwd")
        .device("null");
    let record = Image::new("odd", &[plain_layer("gone", b"x"), odd]).pull(&store, "docker.io/library/a:1");
    assert!(std::fs::symlink_metadata("/etc/passwd").is_ok());
    store.remove_image(&record.id).expect("removes");
    assert!(std::fs::symlink_metadata("/etc/passwd").is_ok());
    check_accounts(&store);
}

#[test]
fn a_lease_keeps_what_a_pull_relies_on() {
    let (_top, store) = store();
    let base = plain_layer("base", &[1; 50_000]);
    let one = Image::new("one", std::slice::from_ref(&base)).pull(&store, "docker.io/library/a:1");
    let two = Image::new("two", &[base, plain_layer("two", b"2")]);
    let lease = store.lease();
    let sources = two.sources(&store, &lease);
    assert!(matches!(sources[0], LayerSource::Present(_)));
    let removed = store.remove_image(&one.id).expect("removes");
    assert!(removed.freed_bytes < 50_000, "the leased layer is not freed: {removed:?}");
    let record = store.commit_image(&lease, ImageCommit { layers: sources, ..two.commit(None) }).expect("commits");
    assert_eq!(record.layers[0], one.layers[0]);
    drop(lease);
    check_accounts(&store);
}

#[test]
fn the_last_lease_sweeps() {
    let (_top, store) = store();
    let image = Image::new("one", &[plain_layer("a", b"aaa")]);
    let record = image.pull(&store, "docker.io/library/a:1");
    let (diff_id, chain) = (&image.layers[0].0, chain_id(None, &image.layers[0].0));
    let (first, second) = (store.lease(), store.lease());
    for lease in [&first, &first, &second] {
        assert!(store.find_layer(lease, diff_id, &chain).expect("readable").is_some());
    }
    store.remove_image(&record.id).expect("removes");
    drop(first);
    assert_eq!(list(&store.root().join("layers")).len(), 1);
    assert_eq!(store.totals().expect("readable").layers, 1, "what a lease keeps still takes space");
    drop(second);
    check_accounts(&store);
    assert_eq!(store.find_layer(&store.lease(), diff_id, &chain).expect("readable"), None);
}

#[test]
fn what_only_a_lease_kept_does_not_survive_a_reopening() {
    let (_top, store) = store();
    let image = Image::new("one", &[plain_layer("a", b"aaa")]);
    let record = image.pull(&store, "docker.io/library/a:1");
    let root = store.root().to_owned();
    let lease = store.lease();
    store.find_layer(&lease, &image.layers[0].0, &image.layers[0].0).expect("readable").expect("there");
    store.remove_image(&record.id).expect("removes");
    // The process ends without the lease's end.
    let copy = tempfile::tempdir().expect("tempdir");
    super::support::run("cp", &["-a", root.to_str().expect("text"), copy.path().to_str().expect("text")]);
    let store = open(&copy.path().join("store"));
    check_accounts(&store);
    drop(lease);
}

#[test]
fn repeated_layer_may_be_below_a_layer_without_a_root() {
    let (_top, store) = store();
    let twice = plain_layer("x", b"x");
    Image::new("twice", &[twice.clone(), twice, Tar::default().file("d/below", b"x")]).pull(&store, "r.example/i:1");
    check_accounts(&store);
}

#[test]
fn many_go_at_once_and_one_that_is_not_there_keeps_none() {
    let (_top, store) = store();
    let shared = plain_layer("shared", &[1; 50_000]);
    let pull = |number: u8| {
        let own = plain_layer(&format!("own-{number}"), &[number; 20_000]);
        Image::new(&format!("image {number}"), &[shared.clone(), own]).pull(&store, &format!("r.example/i:{number}"))
    };
    // More than one transaction takes.
    let images: Vec<_> = (0..70).map(pull).collect();
    let known = store.layers_of_images().expect("read");
    assert_eq!((known.layers.len(), known.images.len()), (71, 70));
    let bytes: u64 = known.layers.iter().sum::<u64>() + known.images.iter().map(|(_, own, _)| own).sum::<u64>();
    assert_eq!(bytes, store.totals().expect("read").bytes);

    let mut ids: Vec<Digest> = images.iter().skip(1).map(|image| image.id.clone()).collect();
    ids.insert(3, Digest::sha256(b"never"));
    let removed = store.remove_images(&ids);
    assert_eq!(removed.len(), 70);
    for (number, removed) in removed.iter().enumerate() {
        let freed = removed.as_ref().expect("removed").freed_bytes;
        // The shared layer stays with the first image.
        assert!(if number == 3 { freed == 0 } else { (20_000..50_000).contains(&freed) }, "{number}: {freed}");
    }
    assert_eq!(store.images().expect("listed").len(), 1);
    check_accounts(&store);
    assert!(store.remove_image(&images[0].id).expect("removed").freed_bytes > 70_000);
    assert_eq!(store.totals().expect("read").bytes, 0);
    assert_eq!(list(&store.root().join("layers")), Vec::<String>::new());
}

/// Layers of every kind: with what is replaced, with many files, with directories from below, with links and whiteouts.
fn layer_of_kind(kind: usize, size: usize) -> Tar {
    match kind {
        0 => plain_layer("x", &vec![1; size]).file("d/x", &vec![2; size / 2]),
        1 => (0..size / 1000).fold(plain_layer("x", b""), |tar, file| tar.file(&format!("d/{file}"), &[3; 100])),
        2 => Tar::default().file("d/below", &vec![4; size]),
        3 => plain_layer("x", b"").symlink("d/link", &"l/".repeat(1 + size / 1500)).file("d/.wh.y", b""),
        _ => plain_layer(&format!("x{kind}"), &vec![5; size]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Images that share layers in any way: the usage that layers report for any set of them is what the disk gets back.
    #[test]
    fn what_is_promised_is_what_the_disk_gets_back(
        stacks in prop::collection::vec(prop::collection::vec(0_usize..6, 0..4), 1..6),
        sizes in prop::collection::vec(0_usize..60_000, 6),
        taken in prop::collection::vec(any::<bool>(), 6),
    ) {
        let (_top, store) = store();
        let tars: Vec<Tar> = sizes.iter().enumerate().map(|(kind, size)| layer_of_kind(kind, *size)).collect();
        let mut ids = BTreeSet::new();
        for (number, stack) in stacks.iter().enumerate() {
            let layers: Vec<Tar> = stack.iter().map(|layer| tars[*layer].clone()).collect();
            let image = Image::new(&format!("image {number}"), &layers);
            ids.insert(image.pull(&store, &format!("r.example/i:{number}")).id);
        }
        let gone: Vec<Digest> = ids.iter().zip(&taken).filter(|(_, taken)| **taken).map(|(id, _)| id.clone()).collect();
        let known = store.layers_of_images().expect("readable");
        let layers_of = |goes: bool| -> BTreeSet<u32> {
            let images = known.images.iter().filter(|(id, ..)| gone.contains(id) == goes);
            images.flat_map(|(.., layers)| layers.iter().copied()).collect()
        };
        let freed = layers_of(true).difference(&layers_of(false)).map(|layer| known.layers[*layer as usize]).sum::<u64>();
        let on_disk = || {
            let layers = store.root().join("layers");
            // The list of the layers stays.
            measure(&layers).0 - std::fs::metadata(layers).expect("there").blocks() * 512
        };
        let before = on_disk();
        let removed = store.remove_images(&gone).into_iter().map(|removed| removed.expect("removes").freed_bytes);
        prop_assert_eq!((removed.sum::<u64>(), before - on_disk()), (freed, freed));
        check_accounts(&store);
    }
}
