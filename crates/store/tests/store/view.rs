//! File trees read without mounting: layers on each other, links that stay within the image, one layer by itself, and copies
//! that stay where they belong. Whether a copy is what a mount shows is compared by the tests of the product.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use imagelet_store::view::copy::{Copied, CopyOptions};
use imagelet_store::view::{Kind, Node, View, ViewError};
use imagelet_store::{LayerFormat, OpenOptions, Store};
use oci::Digest;

use super::support::{Image, NEVER, Tar, check_accounts, list, open, options, plain_layer};

struct Bench {
    store: Store,
    top: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let top = tempfile::tempdir().expect("tempdir");
        let store = open(&top.path().join("store"));
        Self { store, top }
    }

    /// As an ordinary user has it.
    fn ordinary() -> Self {
        let top = tempfile::tempdir().expect("tempdir");
        let options = imagelet_store::OpenOptions { privileged: Some(false), ..options() };
        Self { store: Store::open(&top.path().join("store"), options).expect("opens"), top }
    }

    fn pull(&self, layers: &[Tar]) -> View {
        Image::new("tree", layers).pull(&self.store, "docker.io/library/tree:1");
        self.view("tree:1")
    }

    fn view(&self, text: &str) -> View {
        let lease = self.store.lease();
        let stack = self.store.stack(&lease, &text.into()).expect("readable").expect("it is there");
        View::open(self.store.root(), &stack).expect("opens")
    }

    fn out(&self) -> std::path::PathBuf {
        let out = self.top.path().join("out");
        fs::create_dir_all(&out).expect("mkdir");
        out
    }
}

fn names(view: &View, path: &str) -> Vec<String> {
    let dir = view.resolve(path.as_bytes(), true).expect("there");
    view.entries(&dir).expect("a directory").iter().map(|n| String::from_utf8_lossy(n.name()).into_owned()).collect()
}

fn text(view: &View, path: &str) -> String {
    let node = view.resolve(path.as_bytes(), true).unwrap_or_else(|e| panic!("{path}: {e:?}"));
    let file = view.file(&node).expect("a file");
    let mut bytes = vec![0; 100];
    let length = file.read_at(0, &mut bytes).expect("reads");
    assert_eq!(file.read_at(length as u64, &mut bytes[length..]).expect("reads"), 0, "{path}");
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

fn missing(view: &View, path: &str) -> bool {
    matches!(view.resolve(path.as_bytes(), false), Err(ViewError::NotFound { .. }))
}

fn copy(view: &View, path: &str, into: &Path, name: Option<&str>) -> Result<Copied, ViewError> {
    let node = view.resolve(path.as_bytes(), false)?;
    let privileged = rustix::process::geteuid().is_root();
    view.copy(&node, into, name.map(str::as_bytes), CopyOptions { privileged, whole: false, cancelled: NEVER })
}

fn stacked() -> Vec<Tar> {
    vec![
        plain_layer("a", b"lower")
            .file("d/gone", b"x")
            .file("d/replaced", b"x")
            .directory("hidden/", 0o755)
            .file("hidden/x", b"x")
            .directory("was/", 0o755)
            .file("was/dir", b"x")
            .directory("tmp/", 0o1777)
            .directory_with("owned/", 0o700, (7, 8), 1_000_000),
        Tar::default()
            .directory("d/", 0o750)
            .file("d/a", b"upper")
            .file("d/.wh.gone", b"")
            .directory("hidden/", 0o755)
            .file("hidden/.wh..wh..opq", b"")
            .file("hidden/y", b"y")
            .file("was", b"a file")
            .file("tmp/new", b"new")
            .file("owned/too", b"x"),
        plain_layer("b", b"bbb").file("d/.wh.replaced", b"").directory("was/", 0o755).file("was/again", b"x"),
    ]
}

#[test]
fn layers_lie_on_each_other_as_in_a_mount() {
    let bench = Bench::new();
    let view = bench.pull(&stacked());
    assert_eq!(names(&view, "/"), ["d", "hidden", "owned", "tmp", "was"]);
    assert_eq!(names(&view, "d"), ["a", "b"]);
    assert_eq!((text(&view, "d/a"), text(&view, "/d/b")), ("upper".to_owned(), "bbb".to_owned()));
    assert_eq!(names(&view, "hidden"), ["y"]);
    assert_eq!(names(&view, "was"), ["again"], "what a file has hidden does not come back");
    for path in ["d/gone", "d/replaced", "hidden/x", "was/dir", "nothing", "d/a/b/../..", "d/nothing/.."] {
        let missing =
            missing(&view, path) || matches!(view.resolve(path.as_bytes(), false), Err(ViewError::Kind { .. }));
        assert!(missing, "{path}");
    }
    let stat = |path: &str| *view.resolve(path.as_bytes(), true).expect("there").stat();
    assert_eq!(stat("tmp").mode, 0o1777, "an implicit directory is as below");
    if rustix::process::geteuid().is_root() {
        assert_eq!((stat("owned").uid, stat("owned").gid, stat("owned").mtime), (7, 8, (1_000_000, 0)));
    }
    let layers: Vec<&Digest> = view.layers().collect();
    let from =
        |path: &str| view.layer_of(&view.resolve(path.as_bytes(), true).expect("there")).expect("a layer").clone();
    assert_eq!((&from("d/a"), &from("d/b")), (layers[1], layers[0]));
}

#[test]
fn links_lead_on_within_the_image() {
    let bench = Bench::new();
    fs::write(bench.top.path().join("outside"), "secret").expect("writes");
    let outside = bench.top.path().join("outside").display().to_string();
    let view = bench.pull(&[
        plain_layer("f", b"inside")
            .symlink("absolute", "/d/f")
            .symlink("relative", "d/../d/f")
            .symlink("d/up", "../../../../d/f")
            .symlink("dir", "d")
            .symlink("loop", "pool")
            .symlink("pool", "loop")
            .symlink("me", "me/x")
            .symlink("nowhere", "not/there")
            .symlink("out", &outside)
            .symlink("magic", "/proc/self/fd/../cwd"),
        Tar::default().symlink("upper", "dir/f"),
    ]);
    for path in ["absolute", "relative", "d/up", "dir/f", "dir/../dir/f", "upper", "../../d/f"] {
        assert_eq!(text(&view, path), "inside", "{path}");
    }
    for path in ["loop", "me"] {
        assert!(matches!(view.resolve(path.as_bytes(), true), Err(ViewError::Links { .. })), "{path}");
    }
    for path in ["nowhere", "out", "magic"] {
        assert!(matches!(view.resolve(path.as_bytes(), true), Err(ViewError::NotFound { .. })), "{path}");
        assert_eq!(view.resolve(path.as_bytes(), false).expect("the link itself").stat().kind, Kind::Symlink);
    }
    let dir = |path: &[u8]| view.resolve(path, false).expect("there").stat().kind;
    assert_eq!((dir(b"dir"), dir(b"dir/"), dir(b"dir/.")), (Kind::Symlink, Kind::Directory, Kind::Directory));
    assert!(matches!(view.resolve(b"d/f/", false), Err(ViewError::Kind { wanted: Kind::Directory, .. })));
    assert!(matches!(view.resolve(b"d/f/x", false), Err(ViewError::Kind { .. })));
    let link = view.resolve(b"d/up", false).expect("there");
    assert_eq!(view.target(&link).expect("reads"), b"../../../../d/f");
}

#[test]
fn one_layer_shows_what_it_hides() {
    let bench = Bench::new();
    let image = Image::new("blobs", &stacked()).with_blobs();
    image.pull(&bench.store, "docker.io/library/tree:1");
    let diff_id = image.layers[1].0.to_string();
    let blob = Digest::sha256(&image.blobs[1]).to_string();
    for text in [diff_id, blob] {
        let view = bench.view(&text);
        assert_eq!(names(&view, "d"), ["a", "gone"], "{text}");
        let at = |path: &[u8]| view.resolve(path, false).expect("there");
        assert_eq!(at(b"d/gone").stat().kind, Kind::Whiteout);
        assert!(view.hides_below(&at(b"hidden")).expect("reads") && !view.hides_below(&at(b"d")).expect("reads"));
        let copied = copy(&view, "/", &bench.out(), None).expect("copies");
        assert_eq!(copied.lacks.whiteouts, 1, "{copied:?}");
    }
    let lease = bench.store.lease();
    let nothing = |text: &str| bench.store.stack(&lease, &text.into()).expect("readable").is_none();
    assert!(nothing(&Digest::sha256(b"no such layer").to_string()) && nothing("no-such-image:1"));
}

#[test]
fn a_copy_is_the_tree_and_nothing_else() {
    let bench = Bench::new();
    let zeros = vec![0; 600 << 10];
    let view = bench.pull(&[
        plain_layer("f", b"content")
            .directory("closed/", 0o500)
            .file("closed/in", b"in")
            .symlink("d/link", "/etc/passwd")
            .file("zeros", &zeros)
            .file("empty", b""),
        Tar::default().file("d/g", b"g"),
    ]);
    let out = bench.out();
    let copied = copy(&view, "/", &out, None).expect("copies");
    assert_eq!((copied.files, copied.directories, copied.others), (5, 2, 1), "{copied:?}");
    assert_eq!(copied.bytes, 7 + 2 + 1 + zeros.len() as u64);
    assert_eq!(list(&out), ["closed", "d", "empty", "zeros"]);
    assert_eq!(fs::read(out.join("zeros")).expect("reads"), zeros);
    assert!(fs::metadata(out.join("zeros")).expect("there").blocks() * 512 < 600 << 10, "zeros take no space");
    assert_eq!(fs::read(out.join("closed/in")).expect("reads"), b"in");
    assert_eq!(fs::read_link(out.join("d/link")).expect("a link"), Path::new("/etc/passwd"));
    let meta = fs::metadata(out.join("closed")).expect("there");
    assert_eq!((meta.permissions().mode() & 0o7777, meta.mtime()), (0o500, 0o14_000_000_000));

    // Once more, over itself; and one thing under another name.
    fs::set_permissions(out.join("closed"), fs::Permissions::from_mode(0o700)).expect("chmod");
    copy(&view, "/", &out, None).expect("copies over what is there");
    copy(&view, "d/f", &out, Some("renamed")).expect("copies");
    assert_eq!(fs::read(out.join("renamed")).expect("reads"), b"content");
    copy(&view, "d", &out, Some("e")).expect("copies");
    assert_eq!(list(&out.join("e")), ["f", "g", "link"]);
}

#[test]
fn a_copy_never_leaves_its_directory() {
    let bench = Bench::new();
    let outside = bench.top.path().join("outside");
    fs::create_dir(&outside).expect("mkdir");
    fs::write(outside.join("f"), "mine").expect("writes");
    let target = outside.display().to_string();
    let view = bench.pull(&[
        // A link out of the image, and a layer that puts a directory in its place.
        plain_layer("f", b"theirs").symlink("way", &target).symlink("d/way", &target),
        Tar::default().directory("way/", 0o755).file("way/f", b"theirs"),
    ]);
    let out = bench.out();
    copy(&view, "/", &out, None).expect("copies");
    assert_eq!(fs::read(out.join("way/f")).expect("reads"), b"theirs");
    assert_eq!(fs::read(outside.join("f")).expect("reads"), b"mine");

    // There are links at the destination: a file replaces one, a directory is not written through one.
    let out = bench.top.path().join("links");
    fs::create_dir(&out).expect("mkdir");
    symlink(outside.join("f"), out.join("f")).expect("symlink");
    copy(&view, "d/f", &out, Some("f")).expect("copies");
    assert!(fs::symlink_metadata(out.join("f")).expect("there").is_file());
    symlink(&outside, out.join("d")).expect("symlink");
    let error = copy(&view, "d", &out, Some("d")).expect_err("a link is in the way");
    assert!(matches!(error, ViewError::InTheWay { .. }), "{error:?}");
    assert_eq!(list(&outside), ["f"]);
    assert_eq!(fs::read(outside.join("f")).expect("reads"), b"mine");
    fs::create_dir(out.join("g")).expect("mkdir");
    let error = copy(&view, "d/f", &out, Some("g")).expect_err("a directory is in the way");
    assert!(matches!(error, ViewError::InTheWay { .. }), "{error:?}");
}

#[test]
fn deeper_than_files_can_be_open() {
    let bench = Bench::new();
    let mut deep = Tar::default().directory("./", 0o755);
    let mut path = String::new();
    for _ in 0..40 {
        path.push_str("d/");
        deep = deep.directory(&path, 0o755).file(&format!("{path}f"), path.as_bytes());
    }
    // A path of a tar header is short; another layer's view of a deeper tree is not needed to come by the limit of what is held.
    let view = bench.pull(&[deep]);
    let out = bench.out();
    let mut base = out.clone();
    for _ in 0..3 {
        let copied = copy(&view, "/", &base, None).expect("copies");
        assert_eq!((copied.files, copied.directories), (40, 40));
        base = base.join(&path);
    }
    let node: Node = view.resolve(format!("{path}f").as_bytes(), false).expect("there");
    assert_eq!(node.path(), format!("{path}f").as_bytes());
}

#[test]
fn what_an_ordinary_user_could_not_make_is_shown_all_the_same() {
    let bench = Bench::ordinary();
    let view = bench.pull(&[
        plain_layer("a", b"a").directory_with("owned/", 0o000, (7, 8), 5).device("null"),
        Tar::default().file("d/.wh.a", b""),
    ]);
    assert!(missing(&view, "d/a"));
    let stat = |path: &str| *view.resolve(path.as_bytes(), false).expect("there").stat();
    let owned = stat("owned");
    assert_eq!((owned.uid, owned.gid, owned.mode), (7, 8, 0));
    let null = stat("null");
    assert_eq!((null.kind, null.device, null.mode), (Kind::Char, (1, 3), 0o600));
    assert_eq!((stat("d").uid, stat("d").gid), (0, 0));
    let node = view.resolve(b"/", false).expect("the root");
    let out = bench.out();
    let copied = view
        .copy(&node, &out, None, CopyOptions { privileged: false, whole: false, cancelled: NEVER })
        .expect("copies");
    assert_eq!(copied.lacks.devices, 1, "{copied:?}");
    assert_eq!(list(&out), ["d", "owned"]);
    if rustix::process::geteuid().is_root() {
        let view = bench.view("tree:1");
        let node = view.resolve(b"null", false).expect("there");
        let options = CopyOptions { privileged: true, whole: false, cancelled: NEVER };
        view.copy(&node, &out, Some(b"null"), options).expect("copies");
        assert!(fs::symlink_metadata(out.join("null")).expect("there").file_type().is_char_device());
    }
}

/// Attributes of an image by which the node's kernel would decide about a file of the node.
#[test]
fn a_copy_has_no_labels_of_the_image() {
    let top = tempfile::tempdir().expect("tempdir");
    let is_root = rustix::process::geteuid().is_root();
    for (n, layer_format) in [LayerFormat::Dir, LayerFormat::Erofs].into_iter().enumerate() {
        let store = Store::open(&top.path().join(n.to_string()), OpenOptions { layer_format, ..options() });
        let store = store.expect("opens");
        // A digest in the form that the kernel accepts.
        let digest = format!("\u{4}\u{4}{}", "7".repeat(32));
        let all = [("user.kept", "1"), ("security.selinux", "theirs"), ("security.ima", &digest)];
        let tar = Tar::default().directory("d/", 0o755).xattrs(&all).file("d/f", b"x");
        Image::new("labels", &[tar]).pull(&store, "docker.io/library/labels:1");
        let lease = store.lease();
        let stack = store.stack(&lease, &"labels:1".into()).expect("readable").expect("there");
        let view = View::open(store.root(), &stack).expect("opens");
        let out = top.path().join(format!("out{n}"));
        fs::create_dir(&out).expect("made");
        let copied = copy(&view, "d/f", &out, Some("f")).expect("copies");
        let get = |name| rustix::fs::getxattr(out.join("f"), name, &mut [0; 100][..]).map(drop);
        assert_eq!(get("user.kept"), Ok(()), "{layer_format:?}");
        assert!(get("security.ima").is_err(), "{layer_format:?}");
        if is_root {
            assert_eq!(copied.lacks.xattrs, 2, "{layer_format:?}");
        }
    }
}

#[test]
fn a_copy_can_be_given_up() {
    let bench = Bench::new();
    let view = bench.pull(&stacked());
    let node = view.resolve(b"/", false).expect("the root");
    let options = CopyOptions { privileged: false, whole: false, cancelled: &|| true };
    assert!(matches!(view.copy(&node, &bench.out(), None, options), Err(ViewError::Cancelled)));
}

#[test]
fn a_copy_of_a_file_that_fails_leaves_the_file_that_was_there() {
    let bench = Bench::new();
    let view = bench.pull(&[Tar::default().file("f", &vec![7; 700_000])]);
    let out = bench.out();
    fs::write(out.join("f"), "mine").expect("writes");
    fs::create_dir(out.join("d")).expect("creates");
    let node = view.resolve(b"f", false).expect("there");
    for pieces in 0..3_i32 {
        let left = std::cell::Cell::new(pieces);
        let cancelled = || left.replace(left.get() - 1) == 0;
        let options = CopyOptions { privileged: false, whole: false, cancelled: &cancelled };
        assert!(matches!(view.copy(&node, &out, Some(b"f"), options), Err(ViewError::Cancelled)));
        assert_eq!(
            (fs::read(out.join("f")).expect("reads"), list(&out)),
            (b"mine".to_vec(), vec!["d".into(), "f".into()])
        );
    }
    let error = copy(&view, "f", &out, Some("d")).expect_err("a directory");
    assert!(matches!(error, ViewError::InTheWay { .. }), "{error:?}");
    copy(&view, "f", &out, Some("f")).expect("copies");
    assert_eq!((fs::read(out.join("f")).expect("reads").len(), list(&out).len()), (700_000, 2));
}

/// Directories that a layer does not name are as in the layer below, whichever shape each of the two has on the disk, and even if
/// their attributes could not be set there.
#[test]
fn an_ordinary_users_layers_of_both_shapes_show_what_the_image_says() {
    let top = tempfile::tempdir().expect("tempdir");
    let open = |layer_format| {
        let options = OpenOptions { privileged: Some(false), layer_format, ..options() };
        Store::open(&top.path().join("store"), options).expect("opens")
    };
    let base = Tar::default()
        .directory_with("./", 0o750, (5, 6), 1_000_000)
        .directory_with("owned/", 0o500, (7, 8), 2_000_000)
        .file("owned/a", b"a");
    let upper = Tar::default().file("owned/b", b"b");
    let shown = |store: &Store| {
        let lease = store.lease();
        for name in ["base:1", "top:1"] {
            let stack = store.stack(&lease, &name.into()).expect("readable").expect("there");
            let view = View::open(store.root(), &stack).expect("opens");
            let of = |path: &str| {
                let stat = *view.resolve(path.as_bytes(), false).expect("there").stat();
                (stat.mode, stat.uid, stat.gid, stat.mtime.0)
            };
            assert_eq!(of("/"), (0o750, 5, 6, 1_000_000), "{name}");
            assert_eq!(of("owned"), (0o500, 7, 8, 2_000_000), "{name}");
        }
        check_accounts(store);
    };
    for (below, above) in [(LayerFormat::Dir, LayerFormat::Erofs), (super::FORMAT, LayerFormat::Dir)] {
        let store = open(below);
        Image::new("base", std::slice::from_ref(&base)).pull(&store, "docker.io/library/base:1");
        drop(store);
        let store = open(above);
        let image = Image::new("top", &[base.clone(), upper.clone()]).pull(&store, "docker.io/library/top:1");
        shown(&store);
        for to in [LayerFormat::Erofs, LayerFormat::Dir, LayerFormat::Erofs] {
            store.convert_image(&image.id, to, NEVER).expect("converts");
            shown(&store);
        }
        for image in store.images().expect("readable") {
            store.remove_image(&image.id).expect("removes");
        }
    }
}
