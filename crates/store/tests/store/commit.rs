//! The content that a commit makes visible, and what it leaves alone when it fails.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use imagelet_store::{CommitError, ImageCommit, ImageRecord, LayerSource, Store, StoreError};
use oci::{Digest, chain_id};

use super::support::{
    Image, MANIFEST, Tar, Trees, check_accounts, in_directories, list, open, plain_layer, reference, unpack,
};

fn store() -> (tempfile::TempDir, Store) {
    let top = tempfile::tempdir().expect("tempdir");
    let store = open(&top.path().join("store"));
    (top, store)
}

fn names(record: &ImageRecord) -> Vec<&str> {
    record.tags.iter().chain(&record.repo_digests).map(String::as_str).collect()
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn an_image_is_there_with_all_it_has() {
    let (_top, store) = store();
    let image = Image::new("one", &[plain_layer("a", b"aaa"), plain_layer("b", &[7; 10_000])]);
    let lease = store.lease();
    let layers = image.sources(&store, &lease);
    let index = Image::index_of(&image.manifest, MANIFEST);
    let commit = ImageCommit {
        layers,
        indexes: vec![index.clone()],
        annotations: [("k".to_owned(), "v".to_owned())].into(),
        pinned: true,
        ..image.commit(Some("quay.io/team/app:1"))
    };
    let record = store.commit_image(&lease, commit).expect("commits");
    assert_eq!(record.id, image.id());
    assert_eq!((&record.config, &record.manifest), (&image.config, &image.manifest));
    assert_eq!(record.manifest_digest, Digest::sha256(&image.manifest));
    assert_eq!(record.manifest_media_type, MANIFEST);
    assert_eq!(record.index.as_deref(), Some(index.as_slice()));
    assert_eq!(record.index_digest, Some(Digest::sha256(&index)));
    assert_eq!(names(&record), ["quay.io/team/app:1", image.repo_digest("quay.io/team/app").as_str()]);
    assert_eq!(record.created_at_unix_nanos, 1_700_000_000_000_000_000);
    assert!(record.pinned);
    assert_eq!(record.annotations["k"], "v");
    assert_eq!(store.images().expect("readable"), std::slice::from_ref(&record));
    assert_eq!(store.image(&image.id()).expect("readable"), Some(record.clone()));

    let directories = Trees::of(&store, &record);
    assert_eq!(fs::read(directories[0].join("d/a")).expect("there"), b"aaa");
    assert_eq!(fs::read(directories[1].join("d/b")).expect("there"), [7; 10_000]);
    let of_layers: u64 = store.image_layers(&record).expect("readable").iter().map(|l| l.stats.disk_bytes).sum();
    let documents = (image.config.len() + image.manifest.len() + index.len()) as u64;
    assert_eq!(record.size, of_layers + documents);
    assert!(of_layers >= 10_000);
    drop(lease);
    check_accounts(&store);
}

#[test]
fn exported_tar_stream_equals_the_imported_one() {
    let (_top, store) = store();
    let image = Image::new("one", &[plain_layer("a", b"aaa").symlink("d/l", "a"), plain_layer("b", &[7; 10_000])]);
    let record = image.pull(&store, "docker.io/library/a:1");
    for (layer, (diff_id, tar)) in store.image_layers(&record).expect("readable").iter().zip(&image.layers) {
        assert_eq!(&layer.diff_id, diff_id);
        let mut out = Vec::new();
        store.export_layer(layer, &mut out).expect("exports");
        assert_eq!(&out, tar);
    }
}

#[test]
fn an_image_without_layers() {
    let (_top, store) = store();
    let record = Image::new("nothing", &[]).pull(&store, "docker.io/library/nothing:1");
    assert_eq!(record.size, (record.config.len() + record.manifest.len()) as u64);
    assert!(store.image_is_whole(&record));
    check_accounts(&store);
}

#[test]
fn one_image_by_many_names_is_one_record() {
    let (_top, store) = store();
    let image = Image::new("one", &[plain_layer("a", b"aaa")]);
    image.pull(&store, "docker.io/library/a:1");
    image.pull(&store, "quay.io/mirror/a:1");
    image.pull(&store, "docker.io/library/a:2");
    let images = store.images().expect("readable");
    assert_eq!(images.len(), 1);
    assert_eq!(
        names(&images[0]),
        [
            "docker.io/library/a:1",
            "docker.io/library/a:2",
            "quay.io/mirror/a:1",
            image.repo_digest("docker.io/library/a").as_str(),
            image.repo_digest("quay.io/mirror/a").as_str(),
        ]
    );
    check_accounts(&store);
}

#[test]
fn a_moved_tag_leaves_the_old_image_its_digest() {
    let (_top, store) = store();
    let (old, new) = (Image::new("old", &[plain_layer("a", b"old")]), Image::new("new", &[plain_layer("a", b"new")]));
    old.pull(&store, "docker.io/library/a:latest");
    new.pull(&store, "docker.io/library/a:latest");
    let of = |image: &Image| store.image(&image.id()).expect("readable").expect("still listed");
    assert_eq!(names(&of(&old)), [old.repo_digest("docker.io/library/a")]);
    assert_eq!(names(&of(&new)), ["docker.io/library/a:latest", &new.repo_digest("docker.io/library/a")]);
    assert_eq!(store.resolve(&"a".into()).expect("resolves").map(|i| i.id), Some(new.id()));
    assert_eq!(
        store.resolve(&old.repo_digest("docker.io/library/a").into()).expect("resolves").map(|i| i.id),
        Some(old.id())
    );
    // And back.
    old.pull(&store, "docker.io/library/a:latest");
    assert_eq!(store.resolve(&"a".into()).expect("resolves").map(|i| i.id), Some(old.id()));
    // An image that lost its only name is listed without one.
    store.tag(&new.id(), &reference("docker.io/library/b:1")).expect("tags");
    store.tag(&old.id(), &reference("docker.io/library/b:1")).expect("tags");
    assert!(of(&new).tags.is_empty());
    check_accounts(&store);
}

#[test]
fn a_pull_by_digest_gives_no_tag() {
    let (_top, store) = store();
    let image = Image::new("one", &[]);
    let lease = store.lease();
    let wanted = image.repo_digest("docker.io/library/a");
    let commit = ImageCommit { repo_digest: Some(reference(&wanted)), ..image.commit(None) };
    let record = store.commit_image(&lease, commit).expect("commits");
    assert_eq!(names(&record), [wanted.as_str()]);
}

#[test]
fn shared_layers_are_there_once() {
    let (_top, store) = store();
    let base = plain_layer("base", &[1; 50_000]);
    let one =
        Image::new("one", &[base.clone(), plain_layer("one", &[2; 20_000])]).pull(&store, "docker.io/library/a:1");
    let two = Image::new("two", &[base, plain_layer("two", &[3; 30_000])]).pull(&store, "docker.io/library/b:1");
    assert_eq!(one.layers[0], two.layers[0]);
    let (unique, shared) = store.usage(&one.id).expect("readable").expect("there");
    assert!((20_000..45_000).contains(&unique) && shared >= 50_000, "{unique} {shared}");
    assert_eq!(store.usage(&Digest::sha256(b"nobody")).expect("readable"), None);
    check_accounts(&store);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn repeated_layer_counts_once_in_its_upper_place() {
    let (_top, store) = store();
    let (a, b) = (plain_layer("a", b"aaa"), plain_layer("b", b"bbb"));
    let record = Image::new("aba", &[a.clone(), b, a]).pull(&store, "docker.io/library/a:1");
    assert_eq!(record.layers.len(), 3);
    assert_eq!(record.layers[0], record.layers[2]);
    let directories = Trees::of(&store, &record);
    assert_eq!(directories.len(), 2);
    assert!(directories[0].join("d/b").exists() && directories[1].join("d/a").exists());
    check_accounts(&store);
    store.remove_image(&record.id).expect("removes");
    check_accounts(&store);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn layers_below_an_opaque_root_are_not_stacked() {
    let (_top, store) = store();
    let hiding = Tar::default().directory("./", 0o755).file(".wh..wh..opq", b"").file("only", b"x");
    let record = Image::new("opaque", &[plain_layer("a", b"aaa"), hiding]).pull(&store, "docker.io/library/a:1");
    let directories = Trees::of(&store, &record);
    assert_eq!(directories.len(), 1);
    assert!(directories[0].join("only").exists());
    assert_eq!(record.layers.len(), 2);
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_nothing() {
    let (_top, store) = store();
    let image = Image::new("one", &[plain_layer("a", b"aaa")]);
    let lease = store.lease();
    let layers = || image.sources(&store, &lease);
    let refused = |commit: ImageCommit| store.commit_image(&lease, commit).expect_err("refused");

    let error = refused(image.commit(None));
    assert!(matches!(error, CommitError::LayersMismatch { expected: 1, got: 0, .. }), "{error:?}");
    let other = Image::new("two", &[plain_layer("b", b"bbb")]);
    let error = refused(ImageCommit { layers: layers(), ..other.commit(None) });
    assert!(matches!(error, CommitError::LayersMismatch { expected: 1, got: 1, .. }), "{error:?}");
    let error = refused(ImageCommit { config: b"{".to_vec(), layers: layers(), ..image.commit(None) });
    assert!(matches!(error, CommitError::Config { .. }), "{error:?}");
    let by_digest = Some(reference(&image.repo_digest("a")));
    let error = refused(ImageCommit { tag: by_digest, layers: layers(), ..image.commit(None) });
    assert!(matches!(error, CommitError::Store(StoreError::UnsuitableName { .. })), "{error:?}");
    let error = refused(ImageCommit { repo_digest: Some(reference("a:1")), layers: layers(), ..image.commit(None) });
    assert!(error.to_string().contains("has no digest"), "{error}");
    assert!(store.images().expect("readable").is_empty());
    drop(lease);
    check_accounts(&store);
}

#[test]
fn two_pulls_of_one_layer_keep_one() {
    let (_top, store) = store();
    let layer = plain_layer("a", b"aaa");
    let (one, two) = (Image::new("one", std::slice::from_ref(&layer)), Image::new("two", &[layer]));
    let (first, second) = (store.lease(), store.lease());
    // Both look up their layers before either commits.
    let of_first = one.sources(&store, &first);
    let of_second = two.sources(&store, &second);
    let one = store.commit_image(&first, ImageCommit { layers: of_first, ..one.commit(None) }).expect("commits");
    let two = store.commit_image(&second, ImageCommit { layers: of_second, ..two.commit(None) }).expect("commits");
    assert_eq!(one.layers, two.layers);
    drop((first, second));
    check_accounts(&store);
}

#[test]
fn pulls_can_share_an_unpacked_layer() {
    let (_top, store) = store();
    let layer = plain_layer("a", b"aaa");
    let (one, two) = (Image::new("one", std::slice::from_ref(&layer)), Image::new("two", &[layer]));
    let lease = store.lease();
    let sources = one.sources(&store, &lease);
    let LayerSource::New { layer: unpacked, .. } = &sources[0] else { panic!("it is new") };
    assert_eq!((unpacked.stats().files, unpacked.stats().content_bytes), (1, 3));
    let first =
        store.commit_image(&lease, ImageCommit { layers: sources.clone(), ..one.commit(None) }).expect("commits");
    // The first image is removed before the second pull is done: the shared layer keeps what it needs.
    drop(lease);
    store.remove_image(&first.id).expect("removes");
    let lease = store.lease();
    let second = store.commit_image(&lease, ImageCommit { layers: sources, ..two.commit(None) }).expect("commits");
    assert_eq!(first.layers, second.layers);
    drop(lease);
    check_accounts(&store);
}

/// `d/` has an entry with this mode in the base, and none in the upper layer.
fn base(mode: u32) -> Tar {
    Tar::default().directory("./", 0o755).directory("d/", mode).file("d/base", b"base")
}

fn upper() -> Tar {
    Tar::default().directory("./", 0o755).file("d/upper", b"upper")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("there").permissions().mode() & 0o7777
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn implicit_directories_have_the_attributes_of_those_below() {
    let (_top, store) = store();
    let one = Image::new("one", &[base(0o1777), upper()]).pull(&store, "docker.io/library/a:1");
    let two = Image::new("two", &[base(0o700), upper()]).pull(&store, "docker.io/library/b:1");
    let three = Image::new("three", &[base(0o700), upper()]).pull(&store, "docker.io/library/c:1");
    let upper_mode = |record| mode(&Trees::of(&store, record)[1].join("d"));
    assert_eq!(upper_mode(&one), 0o1777);
    assert_eq!(upper_mode(&two), 0o700);
    assert_ne!(one.layers[1], two.layers[1], "each stack has its own");
    assert_eq!(two.layers, three.layers, "the same stack has the same");
    let layers = store.image_layers(&one).expect("readable");
    assert_eq!(layers[0].chain_id, None);
    assert_eq!(layers[1].chain_id, Some(chain_id(Some(&layers[0].diff_id), &layers[1].diff_id)));
    check_accounts(&store);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn implicit_directories_of_a_middle_layer_reach_the_top() {
    let (_top, store) = store();
    let top = Tar::default().directory("./", 0o755).file("d/top", b"top");
    let record = Image::new("three", &[base(0o711), upper(), top]).pull(&store, "docker.io/library/a:1");
    let directories = Trees::of(&store, &record);
    assert_eq!((mode(&directories[1].join("d")), mode(&directories[2].join("d"))), (0o711, 0o711));
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_layer_of_one_stack_is_copied_for_another() {
    let (_top, store) = store();
    let (one, two) = (Image::new("one", &[base(0o1777), upper()]), Image::new("two", &[base(0o700), upper()]));
    let lease = store.lease();
    let sources = one.sources(&store, &lease);
    let shared = sources[1].clone();
    let first = store.commit_image(&lease, ImageCommit { layers: sources, ..one.commit(None) }).expect("commits");

    // Shared with a pull that commits later.
    let mut sources = two.sources(&store, &lease);
    assert!(matches!(sources[1], LayerSource::New { .. }), "the other stack's layer is not offered");
    sources[1] = shared;
    let second = store.commit_image(&lease, ImageCommit { layers: sources, ..two.commit(None) }).expect("commits");
    assert_ne!(first.layers[1], second.layers[1]);
    let upper_mode = |record| mode(&Trees::of(&store, record)[1].join("d"));
    assert_eq!((upper_mode(&first), upper_mode(&second)), (0o1777, 0o700));

    // Found, but for another stack.
    let three = Image::new("three", &[base(0o711), upper()]);
    let mut sources = three.sources(&store, &lease);
    sources[1] = LayerSource::Present(store.image_layers(&first).expect("readable").remove(1));
    let third = store.commit_image(&lease, ImageCommit { layers: sources, ..three.commit(None) }).expect("commits");
    assert_eq!(upper_mode(&third), 0o711);
    let copy = store.image_layers(&third).expect("readable").remove(1);
    let mut stream = Vec::new();
    store.export_layer(&copy, &mut stream).expect("exports");
    assert_eq!(stream, three.layers[1].1);
    drop(lease);
    check_accounts(&store);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_layer_that_cannot_be_copied_must_be_unpacked_again() {
    let (_top, store) = store();
    let (one, two) = (Image::new("one", &[base(0o1777), upper()]), Image::new("two", &[base(0o700), upper()]));
    let lease = store.lease();
    let sources = one.sources(&store, &lease);
    let shared = sources[1].clone();
    let first = store.commit_image(&lease, ImageCommit { layers: sources, ..one.commit(None) }).expect("commits");
    // The file has the same length, but not the same content.
    let path = &store.layer_directories(&first).expect("readable")[1];
    if in_directories() {
        fs::write(path.join("d/upper"), "UPPER").expect("writes");
    } else {
        let mut image = fs::read(path).expect("readable");
        let at = image.windows(5).position(|bytes| bytes == b"upper").expect("the content comes before the names");
        image[at..at + 5].copy_from_slice(b"UPPER");
        fs::write(path, image).expect("writes");
    }

    let mut sources = two.sources(&store, &lease);
    sources[1] = shared;
    let error = store.commit_image(&lease, ImageCommit { layers: sources, ..two.commit(None) }).expect_err("taken");
    let CommitError::LayerTaken { diff_id, chain_id: chain } = &error else { panic!("{error:?}") };
    assert_eq!(diff_id, &two.layers[1].0);
    assert_eq!(chain, &chain_id(Some(&two.layers[0].0), &two.layers[1].0));
    assert!(store.image(&two.id()).expect("readable").is_none());

    let sources = two.sources(&store, &lease);
    let record = store.commit_image(&lease, ImageCommit { layers: sources, ..two.commit(None) }).expect("commits");
    assert_eq!(mode(&Trees::of(&store, &record)[1].join("d")), 0o700);
    drop(lease);
    check_accounts(&store);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn one_unpacked_layer_twice_in_an_image_fits_both_places() {
    let (_top, store) = store();
    let image = Image::new("one", &[base(0o1777), upper(), base(0o700), upper()]);
    let lease = store.lease();
    let mut sources = image.sources(&store, &lease);
    sources[3] = sources[1].clone();
    let record = store.commit_image(&lease, ImageCommit { layers: sources, ..image.commit(None) }).expect("commits");
    let directories = Trees::of(&store, &record);
    assert_eq!((mode(&directories[1].join("d")), mode(&directories[3].join("d"))), (0o1777, 0o700));
    drop(lease);
    check_accounts(&store);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn what_a_layer_replaces_in_itself_is_counted() {
    let (_top, store) = store();
    let twice = plain_layer("a", &[1; 100_000])
        .file("d/a", b"small")
        .directory("x/", 0o755)
        .file("x/y", b"y")
        .file("x", b"now a file");
    let record = Image::new("one", &[twice]).pull(&store, "docker.io/library/a:1");
    let trees = Trees::of(&store, &record);
    let root = &trees[0];
    assert_eq!(fs::read(root.join("d/a")).expect("there"), b"small");
    check_accounts(&store);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_root_without_an_entry_depends_only_on_a_root_that_is_not_plain() {
    let (_top, store) = store();
    let upper = Tar::default().directory("d/", 0o755).file("d/upper", b"upper");
    let on_plain = Image::new("plain", &[base(0o755), upper.clone()]).pull(&store, "docker.io/library/a:1");
    let alone = Image::new("alone", std::slice::from_ref(&upper)).pull(&store, "docker.io/library/b:1");
    assert_eq!(on_plain.layers[1], alone.layers[0]);
    let odd_root = Tar::default().directory("./", 0o711).directory("d/", 0o755);
    let on_odd = Image::new("odd", &[odd_root, upper]).pull(&store, "docker.io/library/c:1");
    // The layer without a stack is present already, and would give the wrong root.
    let directories = Trees::of(&store, &on_odd);
    assert_eq!(mode(directories.last().expect("two")), 0o711);
    check_accounts(&store);
}

#[test]
fn a_damaged_layer_is_replaced_for_all_its_images() {
    let (_top, store) = store();
    let layer = plain_layer("a", b"aaa");
    let (one, two) = (Image::new("one", std::slice::from_ref(&layer)), Image::new("two", &[layer]));
    let before = one.pull(&store, "docker.io/library/a:1");
    let other = two.pull(&store, "docker.io/library/b:1");
    fs::remove_dir_all(store.layer_directories(&before).expect("readable")[0].parent().expect("below"))
        .expect("removes");
    assert!(!store.image_is_whole(&before) && !store.image_is_whole(&other));
    let lease = store.lease();
    let (diff_id, _) = &one.layers[0];
    assert_eq!(store.find_layer(&lease, diff_id, diff_id).expect("readable"), None);
    drop(lease);

    let after = one.pull(&store, "docker.io/library/a:1");
    assert_ne!(before.layers, after.layers);
    let other = store.image(&other.id).expect("readable").expect("there");
    assert_eq!(other.layers, after.layers);
    assert!(store.image_is_whole(&after) && store.image_is_whole(&other));
    check_accounts(&store);
}

#[test]
fn a_commit_that_fails_half_way_is_taken_back() {
    let (_top, store) = store();
    let image = Image::new("one", &[plain_layer("a", b"aaa"), plain_layer("b", b"bbb")]);
    let lease = store.lease();
    let sources = image.sources(&store, &lease);
    let before = fs::read(store.root().join("meta.redb")).expect("readable");
    // The second layer's place is taken: the first has been moved by then.
    let obstacle = store.root().join("layers/2/x");
    fs::create_dir_all(&obstacle).expect("creates");
    let error = store
        .commit_image(&lease, ImageCommit { layers: sources.clone(), ..image.commit(None) })
        .expect_err("cannot move");
    assert!(error.to_string().contains("move a layer to"), "{error}");
    assert_eq!(list(&store.root().join("layers")), ["2"]);
    assert_eq!(list(&store.root().join("ingest")).len(), 2);
    assert!(store.images().expect("readable").is_empty());
    assert_eq!(fs::read(store.root().join("meta.redb")).expect("readable"), before);

    fs::remove_dir_all(obstacle.parent().expect("below")).expect("removes");
    store.commit_image(&lease, ImageCommit { layers: sources, ..image.commit(None) }).expect("commits");
    drop(lease);
    check_accounts(&store);
}

#[test]
fn a_layer_of_another_store_is_not_taken() {
    let (_top, one) = store();
    let (_other_top, two) = store();
    let image = Image::new("one", &[plain_layer("a", b"aaa")]);
    let sources = image.sources(&one, &one.lease());
    let lease = two.lease();
    let error = two.commit_image(&lease, ImageCommit { layers: sources, ..image.commit(None) }).expect_err("foreign");
    assert!(matches!(error, CommitError::LayerTaken { .. }), "{error:?}");
}

#[test]
fn an_unpacking_that_fails_leaves_nothing() {
    let (_top, store) = store();
    let lease = store.lease();
    let mut tar = plain_layer("a", &[1; 4096]).bytes();
    tar.truncate(1024 + 512 + 100);
    store.new_layer(&lease).expect("creates").unpack(&mut tar.as_slice(), &|| false).expect_err("cut off");
    let whole = plain_layer("a", b"aaa").bytes();
    store.new_layer(&lease).expect("creates").unpack(&mut whole.as_slice(), &|| true).expect_err("cancelled");
    drop(store.new_layer(&lease).expect("creates"));
    let kept = unpack(&store, &lease, &whole);
    let shared = Arc::clone(&kept);
    drop(kept);
    assert_eq!(list(&store.root().join("ingest")).len(), 1);
    drop(shared);
    check_accounts(&store);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_layers_tree_can_be_read_by_all_whatever_the_umask() {
    let (_top, store) = store();
    let tar = Tar::default().file("f", b"x");
    let record = Image::new("one", &[tar]).pull(&store, "docker.io/library/a:1");
    let trees = Trees::of(&store, &record);
    let root = &trees[0];
    assert_eq!(mode(root), 0o755);
    assert_eq!(fs::metadata(root).expect("there").uid(), rustix::process::geteuid().as_raw());
}

#[test]
fn database_does_not_grow_with_pulls_and_removals() {
    let (_top, store) = store();
    let size = || fs::metadata(store.root().join("meta.redb")).expect("there").len();
    let mut sizes = Vec::new();
    for round in 0..6 {
        for number in 0..20 {
            let mut commit = Image::new(&format!("{round} {number}"), &[]).commit(Some("docker.io/library/a:1"));
            commit.manifest.resize(100_000, b' ');
            commit.repo_digest = Some(reference(&format!("docker.io/library/a@{}", Digest::sha256(&commit.manifest))));
            store.commit_image(&store.lease(), commit).expect("commits");
        }
        for image in store.images().expect("readable") {
            store.remove_image(&image.id).expect("removes");
        }
        sizes.push(size());
    }
    // Every round adds two megabytes. The file grows by doubling and shrinks by halves, so that its size varies.
    assert!(sizes.iter().all(|size| *size < 8 << 20), "{sizes:?}");
}
