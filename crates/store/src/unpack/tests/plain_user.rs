//! Layers that an ordinary user unpacks: files that stay readable and removable, and a record of the rest.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, chown};

use serde_json::json;

use super::support::{Layer, want};
use crate::disk::layer::Shape;
use crate::tar::build::{Item, Tar};
use crate::unpack::{Limits, UnpackOptions, unpack};

/// With this capability.
fn layer_of_everything(capability: &[u8]) -> Tar {
    Tar::new()
        .item(&Item::new(b'5', "./").mode(0o555))
        .item(&Item::new(b'5', "closed").mode(0o0))
        .file("closed/f", "inside")
        .item(&Item::new(b'0', "secret").mode(0o040).owner(5, 6).data("s"))
        .item(&Item::new(b'0', "plain").data("p"))
        .item(&Item::new(b'2', "s").link("t").owner(7, 7))
        .item(&Item::new(b'3', "null").device(1, 3).mode(0o666))
        .item(&Item::new(b'6', "pipe"))
        .pax(&[("SCHILY.xattr.security.capability", capability), ("SCHILY.xattr.user.a", b"1")])
        .file("cap", "")
        .item(&Item::new(b'0', b"\xff").owner(1, 1))
        .file(".wh.gone", "")
        .dir("o")
        .file("o/.wh..wh..opq", "")
        .item(&Item::new(b'0', "twice").owner(9, 9))
        .file("twice", "now mine")
}

const TREE: &[(&str, &str)] = &[
    (".", "dir 0755"),
    ("closed", "dir 0700"),
    ("closed/f", "file 0644 inside"),
    ("secret", "file 0640 s"),
    ("plain", "file 0644 p"),
    ("s", "-> t"),
    ("null", "file 0600 "),
    ("pipe", "fifo 0644"),
    ("cap", "file 0644  user.a=1"),
    ("\\xff", "file 0644 "),
    ("gone", "whiteout"),
    ("o", "dir 0755 user.overlay.opaque=y"),
    ("twice", "file 0644 now mine"),
];

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn what_cannot_be_made_is_recorded() {
    let layer = Layer::plain();
    let tar = layer_of_everything(b"\x01").end();
    let outcome = layer.unpack(&tar).unwrap();
    assert_eq!(layer.picture(), want(TREE));
    let lines = json!([
        {"path": "", "type": "directory", "mode": "0555"},
        {"path": "closed", "type": "directory", "mode": "0000"},
        {"path": "secret", "type": "file", "owner": [5, 6], "mode": "0040"},
        {"path": "s", "type": "symbolic link", "owner": [7, 7]},
        {"path": "null", "type": "character device", "owner": [0, 0], "mode": "0666", "device": [1, 3]},
        {"path": "cap", "type": "file", "xattrs": {"security.capability": "AQ=="}},
        {"path_base64": "/w==", "type": "file", "owner": [1, 1]},
        {"path": "twice", "type": "file", "owner": [9, 9]},
        {"path": "twice", "removed": true},
    ]);
    assert_eq!(json!(layer.deferred()), lines);
    assert_eq!(outcome.deferred, 8);
    assert_eq!(layer.rebuild(), tar);
}

/// In an EROFS file everything is as it is where root unpacks.
#[test]
#[ignore = "needs root: scripts/test.sh"]
fn an_image_lacks_nothing() {
    let (root, mut plain) = (Layer::of(Shape::Erofs), Layer::of(Shape::Erofs));
    plain.privileged = false;
    let capability = [&b"\x01\0\0\x02"[..], &[0; 16]].concat();
    let tar = layer_of_everything(&capability).end();
    for layer in [&root, &plain] {
        assert_eq!(layer.unpack(&tar).unwrap().deferred, 0);
        assert!(layer.deferred().is_empty());
    }
    let picture = plain.picture();
    let mut wanted = root.picture();
    wanted.get_mut("o").unwrap().push_str(" user.overlay.opaque=y");
    assert_eq!(picture, wanted, "marked so that both can mount it");
    for (path, text) in [
        (".", "dir 0555"),
        ("closed", "dir 0000"),
        ("secret", "file 0040 s 5:6"),
        ("s", "-> t 7:7"),
        ("null", "char 0666 1:3"),
        ("gone", "whiteout"),
    ] {
        assert_eq!(picture[path], text, "{path}");
    }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn root_records_nothing() {
    let layer = Layer::new();
    let outcome = layer.unpack(&Tar::new().item(&Item::new(b'0', "f").owner(5, 6).mode(0)).end()).unwrap();
    assert_eq!((outcome.deferred, layer.path().join("deferred.jsonl").exists()), (0, false));
}

/// Set in the child that has given up its rights.
const CHILD: &str = "IMAGELET_TEST_PLAIN_USER";

/// The same as a real ordinary user: this test runs itself again with uid 65534.
#[test]
#[ignore = "needs root: scripts/test.sh"]
fn as_unprivileged_user() {
    #[expect(clippy::disallowed_methods, reason = "how the test tells its child from itself")]
    let child = std::env::var_os(CHILD);
    if let Some(directory) = child {
        assert!(!rustix::process::geteuid().is_root());
        let dir = fs::File::open(directory).unwrap();
        let (limits, cancelled) = (Limits::default(), || false);
        let options = UnpackOptions {
            limits: &limits,
            privileged: false,
            cancelled: &cancelled,
            write_back: None,
            hollow: false,
            nested: false,
        };
        unpack(&mut &layer_of_everything(b"\x01").end()[..], dir.as_fd(), &options).unwrap();
        return;
    }
    let layer = Layer::new();
    let tar = layer_of_everything(b"\x01").end();
    chown(layer.path(), Some(65534), Some(65534)).unwrap();
    chown(layer.fs(), Some(65534), Some(65534)).unwrap();
    let above = layer.path().parent().unwrap().to_path_buf();
    fs::set_permissions(above, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    super::support::run_again_as_unprivileged_user(
        "unpack::tests::plain_user::as_unprivileged_user",
        CHILD,
        &layer.path(),
    );
    for (path, text) in layer.picture() {
        let meta = fs::symlink_metadata(layer.fs().join(std::path::Path::new(&path))).ok();
        if let Some(meta) = meta {
            assert_eq!((meta.uid(), meta.gid()), (65534, 65534), "{path}");
        }
        let text = text.replace(" 65534:65534", "");
        assert_eq!(Some(text.as_str()), TREE.iter().find(|(name, _)| *name == path).map(|(_, text)| *text), "{path}");
    }
    assert_eq!(layer.deferred().len(), 9);
    assert_eq!(layer.rebuild(), tar);
}
