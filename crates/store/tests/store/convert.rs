//! Layers from one shape to the other and back: what images show, what is counted, and what is left where it does not go. Needs
//! root.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use imagelet_store::{ConvertError, ImageRecord, LayerFormat, OpenOptions, Store};

use super::support::{Image, NEVER, Tar, check_accounts, list, open, options, plain_layer};

const OTHER: LayerFormat = match super::FORMAT {
    LayerFormat::Erofs => LayerFormat::Dir,
    _ => LayerFormat::Erofs,
};

fn in_shape(store: &Store, image: &ImageRecord, shape: LayerFormat) -> usize {
    let paths = store.layer_directories(image).expect("readable");
    paths.iter().filter(|path| path.is_dir() == (shape == LayerFormat::Dir)).count()
}

/// Three layers, of which the second depends on the first, and the third is the first once more in a stack of its own.
fn stack() -> Image {
    let base = Tar::default()
        .directory("./", 0o711)
        .directory_with("d/", 0o2750, (42, 43), 1_000_000_000)
        .file("d/a", b"lower")
        .file("d/gone", b"x")
        .directory("hidden/", 0o755)
        .file("hidden/x", b"x")
        .symlink("link", "d/a");
    let upper = Tar::default().file("d/b", b"upper").file("d/.wh.gone", b"").file("hidden/.wh..wh..opq", b"");
    Image::new("stack", &[base, upper, plain_layer("c", &[7; 10_000])])
}

/// The files in a mount of the image, by path.
fn shown(store: &Store, image: &ImageRecord, at: &Path) -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    fn walk(path: &Path, below: &Path, found: &mut Vec<String>) {
        let metadata = fs::symlink_metadata(path).expect("there");
        let content = if metadata.is_file() { fs::read(path).expect("readable") } else { Vec::new() };
        let (mode, uid, gid, mtime) = (metadata.mode(), metadata.uid(), metadata.gid(), metadata.mtime());
        let name = path.strip_prefix(below).expect("below").display();
        found.push(format!("{name} {mode:o} {uid}:{gid} {mtime} {}", String::from_utf8_lossy(&content)));
        if metadata.is_dir() {
            for name in list(path) {
                walk(&path.join(name), below, found);
            }
        }
    }
    store.mount_image(image, at, None).expect("mounts");
    let mut found = Vec::new();
    walk(at, at, &mut found);
    store.unmount_image(at).expect("unmounts");
    found
}

/// A store and a place to mount on.
struct Bench {
    store: Store,
    top: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self::with(options())
    }

    fn with(options: OpenOptions) -> Self {
        assert!(rustix::process::geteuid().is_root(), "this test mounts: run it as root");
        let top = tempfile::tempdir().expect("tempdir");
        fs::create_dir(top.path().join("mnt")).expect("creates");
        let store = Store::open(&top.path().join("store"), options).expect("opens");
        Self { store, top }
    }

    fn mnt(&self) -> std::path::PathBuf {
        self.top.path().join("mnt")
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        while rustix::mount::unmount(self.mnt(), rustix::mount::UnmountFlags::DETACH).is_ok() {}
    }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn an_image_looks_the_same_in_the_other_shape_and_back() {
    let bench = Bench::new();
    let (store, mnt) = (&bench.store, bench.mnt());
    let image = stack().pull(store, "docker.io/library/a:1");
    let before = shown(store, &image, &mnt);
    let streams = |image: &ImageRecord| {
        let layers = store.image_layers(image).expect("readable");
        let stream = |layer| {
            let mut stream = Vec::new();
            store.export_layer(layer, &mut stream).expect("exports");
            stream
        };
        layers.iter().map(stream).collect::<Vec<_>>()
    };
    let tars = streams(&image);
    for to in [OTHER, super::FORMAT] {
        let size = store.totals().expect("readable");
        let done = store.convert_image(&image.id, to, NEVER).expect("converts");
        assert_eq!((done.layers, done.left.len()), (3, 0), "{done:?}");
        let image = store.image(&image.id).expect("readable").expect("there");
        assert_eq!(in_shape(store, &image, to), 3);
        assert_eq!(shown(store, &image, &mnt), before, "{to:?}");
        assert_eq!(streams(&image), tars);
        check_accounts(store);
        let now = store.totals().expect("readable");
        assert_eq!(now.bytes + done.bytes_before, size.bytes + done.bytes_after);
        assert_eq!(now.inodes + done.inodes_before, size.inodes + done.inodes_after);
        // A second time there is nothing to do.
        assert_eq!(store.convert_image(&image.id, to, NEVER).expect("converts").layers, 0);
    }
    let root = store.root().to_owned();
    store.convert_image(&image.id, OTHER, NEVER).expect("converts");
    // The conversion is permanent.
    let mut bench = bench;
    bench.store = open(&bench.top.path().join("another"));
    bench.store = open(&root);
    let image = bench.store.images().expect("readable").swap_remove(0);
    assert_eq!(in_shape(&bench.store, &image, OTHER), 3);
    assert_eq!(shown(&bench.store, &image, &mnt), before);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_shared_layer_is_converted_for_every_image_that_has_it() {
    let bench = Bench::new();
    let store = &bench.store;
    let base = plain_layer("a", b"aaa");
    let one = Image::new("one", std::slice::from_ref(&base)).pull(store, "docker.io/library/a:1");
    let two = Image::new("two", &[base.clone(), plain_layer("b", b"bbb"), base]).pull(store, "docker.io/library/b:1");
    assert_eq!(store.convert_image(&one.id, OTHER, NEVER).expect("converts").layers, 1);
    let now = |image: &ImageRecord| store.image(&image.id).expect("readable").expect("there");
    assert_eq!((in_shape(store, &now(&one), OTHER), in_shape(store, &now(&two), OTHER)), (1, 1));
    check_accounts(store);
    // Layers of both shapes lie on each other.
    assert!(shown(store, &now(&two), &bench.mnt()).iter().any(|line| line.ends_with("bbb")));
    assert_eq!(store.convert_image(&two.id, OTHER, NEVER).expect("converts").layers, 1);
    check_accounts(store);
    store.remove_image(&one.id).expect("removes");
    store.remove_image(&two.id).expect("removes");
    check_accounts(store);
    assert_eq!(list(&store.root().join("layers")), Vec::<String>::new());
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn mounted_layers_are_not_converted_and_are_reported() {
    let bench = Bench::new();
    let (store, mnt) = (&bench.store, bench.mnt());
    let base = plain_layer("a", b"aaa");
    let one = Image::new("one", std::slice::from_ref(&base)).pull(store, "docker.io/library/a:1");
    let two = Image::new("two", &[base, plain_layer("b", b"bbb")]).pull(store, "docker.io/library/b:1");
    store.mount_image(&one, &mnt, None).expect("mounts");
    let done = store.convert_image(&two.id, OTHER, NEVER).expect("converts");
    assert_eq!((done.layers, done.left.len()), (1, 1), "{done:?}");
    assert!(done.left[0].why.contains(mnt.to_str().expect("text")), "{done:?}");
    assert_eq!(fs::read(mnt.join("d/a")).expect("still there"), b"aaa");
    store.unmount_image(&mnt).expect("unmounts");
    let done = store.convert_image(&two.id, OTHER, NEVER).expect("converts");
    assert_eq!((done.layers, done.left.len()), (1, 0), "{done:?}");
    check_accounts(store);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn what_is_damaged_or_given_up_stays_as_it_is() {
    let bench = Bench::new();
    let store = &bench.store;
    let image = stack().pull(store, "docker.io/library/a:1");
    let asked = AtomicU32::new(0);
    let soon = || asked.fetch_add(1, Ordering::Relaxed) > 3;
    let error = store.convert_image(&image.id, OTHER, &soon).expect_err("given up");
    assert!(matches!(error, ConvertError::Cancelled), "{error:?}");
    check_accounts(store);
    assert_eq!(in_shape(store, &image, super::FORMAT), 3);

    let lowest = &store.layer_directories(&image).expect("readable")[0];
    fs::remove_file(lowest.parent().expect("the layer").join("recipe.zst")).expect("removes");
    let done = store.convert_image(&image.id, OTHER, NEVER).expect("converts the others");
    assert_eq!((done.layers, done.left.len()), (2, 1), "{done:?}");
    let now = store.image(&image.id).expect("readable").expect("there");
    assert_eq!((in_shape(store, &now, OTHER), in_shape(store, &now, super::FORMAT)), (2, 1));
    let gone = oci::Digest::sha256(b"no image");
    store.convert_image(&gone, OTHER, NEVER).expect_err("no such image");
}

/// After a kill at any point, the old layers or the new ones are present, and leftovers are swept.
#[test]
#[ignore = "needs root: scripts/test.sh"]
fn an_interrupted_conversion_loses_nothing() {
    let bench = Bench::new();
    let image = stack().pull(&bench.store, "docker.io/library/a:1");
    let root = bench.store.root().to_owned();
    let before = shown(&bench.store, &image, &bench.mnt());
    let mut bench = bench;
    bench.store = open(&bench.top.path().join("another"));
    // A conversion that was killed: something under a number that is not recorded, and something in the making.
    let copy = |to: &str| {
        let first = fs::read_dir(root.join("layers")).expect("readable").next().expect("one").expect("readable");
        super::support::run("cp", &["-a", first.path().to_str().expect("text"), root.join(to).to_str().expect("text")]);
    };
    copy("layers/900");
    copy("ingest/7");
    bench.store = open(&root);
    let image = bench.store.images().expect("readable").swap_remove(0);
    assert_eq!(in_shape(&bench.store, &image, super::FORMAT), 3);
    assert_eq!(shown(&bench.store, &image, &bench.mnt()), before);
    check_accounts(&bench.store);
    bench.store.convert_image(&image.id, OTHER, NEVER).expect("converts");
    check_accounts(&bench.store);
}
