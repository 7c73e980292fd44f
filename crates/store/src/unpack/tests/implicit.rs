//! Attributes of implicit directories, taken from the layers below.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};

use super::support::Layer;
use crate::shape::Found;
use crate::tar::build::{Item, Tar};
use crate::unpack::find;

/// Unpacks the layers, lowest first, patches the last one, and describes some of its paths.
fn patched(layers: &[Tar], paths: &[&str]) -> Vec<String> {
    let unpacked: Vec<_> = layers
        .iter()
        .map(|tar| {
            let layer = Layer::new();
            let outcome = layer.unpack(&tar.clone().end()).unwrap();
            (layer, outcome)
        })
        .collect();
    let (top, lowers) = unpacked.split_last().unwrap();
    let fds: Vec<_> = lowers.iter().rev().map(|(layer, _)| fs::File::open(layer.fs()).unwrap()).collect();
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    let own = fs::File::open(top.0.fs()).unwrap();
    patch(own.as_fd(), &top.1.implicit_dirs, &fds);
    for (layer, _) in lowers {
        layer.check_canary();
    }
    let picture = top.0.picture();
    paths.iter().map(|path| picture[*path].clone()).collect()
}

fn dir(path: &str, mode: u32, uid: u64) -> Item {
    Item::new(b'5', path).mode(mode).owner(uid, uid)
}

#[test]
fn everything_is_taken_over() {
    let low = Tar::new()
        .item(&dir("./", 0o750, 1))
        .pax(&[
            ("mtime", b"7.000000009"),
            ("atime", b"8"),
            ("SCHILY.xattr.user.a", b"1"),
            ("SCHILY.xattr.security.x", b"2"),
        ])
        .item(&dir("tmp", 0o1777, 2))
        .item(&dir("tmp/sub", 0o2700, 3));
    let top = Tar::new().file("tmp/sub/f", "1");
    let got = patched(&[low, top], &[".", "tmp", "tmp/sub"]);
    assert_eq!(got, ["dir 0750 1:1", "dir 1777 2:2 security.x=2 user.a=1", "dir 2700 3:3"]);
}

#[test]
fn the_topmost_layer_that_has_it_counts() {
    let layers = [
        Tar::new().item(&dir("a", 0o701, 1)).item(&dir("b", 0o701, 1)),
        Tar::new().item(&dir("a", 0o702, 2)),
        Tar::new().dir("other"),
        Tar::new().file("a/f", "").file("b/f", "").file("c/f", ""),
    ];
    assert_eq!(patched(&layers, &["a", "b", "c"]), ["dir 0702 2:2", "dir 0701 1:1", "dir 0755"]);
}

#[test]
fn what_hides_the_directory_below_hides_its_attributes() {
    let low = || Tar::new().item(&dir("a", 0o701, 1)).item(&dir("a/b", 0o701, 1));
    let top = || Tar::new().file("a/b/f", "");
    let plain = ["dir 0755", "dir 0755"];
    let cases: Vec<(&str, Tar, [&str; 2])> = vec![
        ("nothing", Tar::new().dir("x"), ["dir 0701 1:1", "dir 0701 1:1"]),
        ("a whiteout", Tar::new().file(".wh.a", ""), plain),
        ("a file", Tar::new().file("a", ""), plain),
        ("a symbolic link", Tar::new().dir("t").symlink("a", "t"), plain),
        ("a whiteout below", Tar::new().file("a/.wh.b", ""), ["dir 0755", "dir 0755"]),
        (
            "an opaque directory",
            Tar::new().item(&dir("a", 0o702, 2)).file("a/.wh..wh..opq", ""),
            ["dir 0702 2:2", "dir 0755"],
        ),
        (
            "an opaque directory that has it",
            Tar::new().item(&dir("a", 0o702, 2)).item(&dir("a/b", 0o703, 3)).file("a/.wh..wh..opq", ""),
            ["dir 0702 2:2", "dir 0703 3:3"],
        ),
    ];
    for (name, middle, want) in cases {
        assert_eq!(patched(&[low(), middle, top()], &["a", "a/b"]), want, "{name}");
    }
}

#[test]
fn an_opaque_directory_of_the_layer_itself() {
    let low = || Tar::new().item(&dir("a", 0o701, 1)).item(&dir("a/b", 0o701, 1));
    let opaque = "trusted.overlay.opaque=y";
    // Opaque hides the content, not the directory; a whiteout hides both.
    let got = patched(&[low(), Tar::new().file("a/.wh..wh..opq", "").file("a/b/f", "")], &["a", "a/b"]);
    assert_eq!(got, [format!("dir 0701 1:1 {opaque}"), "dir 0755".into()]);
    let got = patched(&[low(), Tar::new().file(".wh.a", "").file("a/b/f", "")], &["a", "a/b"]);
    assert_eq!(got, [format!("dir 0755 {opaque}"), "dir 0755".into()]);
}

#[test]
fn links_in_lower_layers_lead_nowhere() {
    let low = Layer::new();
    low.unpack(&Tar::new().symlink("a", low.outside().to_str().unwrap()).end()).unwrap();
    let top = Layer::new();
    let outcome = top.unpack(&Tar::new().file("a/f", "").end()).unwrap();
    let (own, lower) = (fs::File::open(top.fs()).unwrap(), fs::File::open(low.fs()).unwrap());
    patch(own.as_fd(), &outcome.implicit_dirs, &[lower.as_fd()]);
    assert_eq!(top.picture()["a"], "dir 0755");
}

/// Takes the attributes over from trees, the topmost first.
fn patch(layer: BorrowedFd<'_>, implicit: &[Vec<u8>], lower_top_first: &[BorrowedFd<'_>]) {
    let below = |path: &[u8]| {
        for lower in lower_top_first {
            match find(*lower, path)? {
                Found::Here(attributes) => return Ok(Some(attributes)),
                Found::Hidden => return Ok(None),
                Found::Absent => {}
            }
        }
        Ok(None)
    };
    crate::unpack::patch_implicit(layer, implicit, &below, true).unwrap();
}
