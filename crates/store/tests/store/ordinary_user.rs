//! A store of an ordinary user: directories without rights, devices that cannot be made, mounts that need a user
//! namespace. The parent needs root to become an ordinary user.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use imagelet_store::view::View;
use imagelet_store::{MountError, OpenError, Store};

use super::support::{Image, Tar, check_accounts, in_directories, list, open, options, plain_layer};

const ROOT: &str = "IMAGELET_STORE_ORDINARY_ROOT";
const NOBODY: &str = "65534";

#[expect(clippy::disallowed_methods, reason = "the parent test tells its child by the environment")]
fn place() -> PathBuf {
    std::env::var_os(ROOT).map(PathBuf::from).expect("started by another test")
}

fn image() -> Image {
    let odd = Tar::default()
        .directory("./", 0o755)
        .directory("closed/", 0o000)
        .directory("closed/inner/", 0o500)
        .file("closed/inner/f", b"x")
        .file("d/.wh.a", b"")
        .directory("hidden/", 0o755)
        .file("hidden/.wh..wh..opq", b"")
        .device("null");
    Image::new("odd", &[plain_layer("a", b"aaa").directory("hidden/", 0o755).file("hidden/x", b"x"), odd])
}

/// Runs in the ordinary user's process.
#[test]
#[ignore = "a process of other tests, which start it: scripts/test.sh"]
fn child() {
    let top = place();
    assert!(!rustix::process::geteuid().is_root());
    let store = open(&top.join("store"));
    assert!(!store.is_privileged());
    let record = image().pull(&store, "docker.io/library/odd:1");
    // An EROFS file has all of it.
    assert_eq!(store.image_layers(&record).expect("readable")[1].stats.deferred > 0, in_directories());
    let target = top.join("target");
    std::fs::create_dir(&target).expect("creates");
    let error = store.mount_image(&record, &target, None).expect_err("an ordinary user cannot mount");
    let text = error.to_string();
    if in_directories() {
        assert!(matches!(error, MountError::NotPermitted { .. }), "{error:?}");
        assert!(text.contains("needs root") && text.contains("unshare"), "{error}");
    } else {
        assert!(matches!(error, MountError::NeedsFuse { .. }), "{error:?}");
        assert!(text.contains("root") && text.contains("imagelet ls"), "{error}");
    }
    assert!(store.mounts().expect("readable").is_empty());
    // Leftovers of a kill are swept, whatever their modes.
    let copy = top.join("store/ingest/7");
    std::fs::create_dir_all(copy.join("fs/closed/inner")).expect("creates");
    for at in ["fs/closed/inner", "fs/closed"] {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(copy.join(at), std::fs::Permissions::from_mode(0o000)).expect("chmod");
    }
    drop(store);
    let store = open(&top.join("store"));
    assert!(list(&top.join("store/ingest")).is_empty());
    // A root that belongs to someone else.
    assert!(matches!(Store::open(Path::new("/"), options()), Err(OpenError::NotOwned { owner: 0, user: 65534, .. })));
    store.remove_image(&record.id).expect("removes");
    check_accounts(&store);
    image().pull(&store, "docker.io/library/odd:1");
}

/// Runs as root of a user namespace of the ordinary user.
#[test]
#[ignore = "a process of other tests, which start it: scripts/test.sh"]
fn child_in_a_namespace() {
    let top = place();
    assert!(rustix::process::geteuid().is_root());
    let store = open(&top.join("store"));
    assert!(!store.is_privileged(), "user 0 of a namespace cannot make devices");
    let record = store.resolve(&"odd:1".into()).expect("resolves").expect("pulled before");
    let target = top.join("target");
    if !in_directories() {
        // The kernel mounts EROFS files only for the machine's root. Mounting depends on erofsfuse; reading does not.
        let lease = store.lease();
        let stack = store.stack(&lease, &"odd:1".into()).expect("readable").expect("there");
        let view = View::open(store.root(), &stack).expect("opens");
        let count =
            |path: &str| view.entries(&view.resolve(path.as_bytes(), false).expect("there")).expect("lists").len();
        assert_eq!((count("d"), count("hidden"), count("closed/inner")), (0, 0, 1));
        store.remove_image(&record.id).expect("removes");
        return;
    }
    store.mount_image(&record, &target, None).expect("mounts");
    assert!(list(&target.join("d")).is_empty());
    assert!(list(&target.join("hidden")).is_empty());
    store.unmount_image(&target).expect("unmounts");
    let directories = store.layer_directories(&record).expect("readable");
    imagelet_store::mount::mount(&directories, &target, None).expect("mounts");
    assert!(list(&target.join("hidden")).is_empty());
    imagelet_store::mount::unmount(&target).expect("unmounts");
    store.remove_image(&record.id).expect("removes");
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn an_ordinary_user_can_have_a_store() {
    assert!(rustix::process::geteuid().is_root(), "this test becomes an ordinary user: run it as root");
    let top = tempfile::tempdir().expect("tempdir");
    // Other users may have no access to the build directory.
    let program = top.path().join("program");
    std::fs::copy(std::env::current_exe().expect("a test is a program"), &program).expect("copies");
    std::os::unix::fs::chown(top.path(), Some(65534), Some(65534)).expect("chown");
    run(&program, top.path(), &[], "child");
    let unshare = ["unshare", "--user", "--map-root-user", "--mount"];
    run(&program, top.path(), &unshare, "child_in_a_namespace");
}

fn run(program: &Path, top: &Path, before: &[&str], test: &str) {
    let module = module_path!().split_once("::").expect("it is no crate").1;
    let test = format!("{module}::{test}");
    #[expect(clippy::disallowed_methods, reason = "another user needs a process of their own")]
    let output: Output = Command::new("setpriv")
        .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"])
        .args(before)
        .arg(program)
        .args([test.as_str(), "--exact", "--ignored", "--nocapture"])
        .env(ROOT, top)
        .env("TMPDIR", top)
        .current_dir("/")
        .output()
        .expect("starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{test}: {text}\n{errors}");
}
