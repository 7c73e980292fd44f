//! Attributes of implicit directories, taken from the layers below.

use super::support::Layer;
use crate::disk::layer::Shape;
use crate::tar::build::{Item, Tar};
use crate::unpack::PathLookup;

/// Unpacks the layers, lowest first, patches the last one, and describes some of its paths: in every mixture of shapes.
fn patched(layers: &[Tar], paths: &[&str]) -> Vec<String> {
    let (low, top) = (Shape::ALL, Shape::ALL);
    let mixtures = low.into_iter().flat_map(|low| top.into_iter().map(move |top| (low, top)));
    let mut all: Vec<_> = mixtures.map(|(low, top)| ((low, top), patched_in(low, top, layers, paths))).collect();
    let (_, first) = all.remove(0);
    for (shapes, got) in all {
        assert_eq!(got, first, "{shapes:?}");
    }
    first
}

fn patched_in(low: Shape, top: Shape, layers: &[Tar], paths: &[&str]) -> Vec<String> {
    let unpack = |(at, tar): (usize, &Tar)| {
        // The lowest of three or more is of the top's shape, too.
        let layer = Layer::of(if at + 1 == layers.len() || at == 0 && layers.len() > 2 { top } else { low });
        let outcome = layer.unpack(&tar.clone().end()).unwrap();
        (layer, outcome)
    };
    let unpacked: Vec<_> = layers.iter().enumerate().map(unpack).collect();
    let (top, lowers) = unpacked.split_last().unwrap();
    let lowers: Vec<&Layer> = lowers.iter().rev().map(|(layer, _)| layer).collect();
    patch(&top.0, &top.1.implicit_dirs, &lowers);
    for layer in lowers {
        layer.check_canary();
    }
    let picture = top.0.picture();
    paths.iter().map(|path| picture[*path].clone()).collect()
}

fn dir(path: &str, mode: u32, uid: u64) -> Item {
    Item::new(b'5', path).mode(mode).owner(uid, uid)
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
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
#[ignore = "needs root: scripts/test.sh"]
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
#[ignore = "needs root: scripts/test.sh"]
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
#[ignore = "needs root: scripts/test.sh"]
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
#[ignore = "needs root: scripts/test.sh"]
fn links_in_lower_layers_lead_nowhere() {
    for shape in Shape::ALL {
        let low = Layer::of(shape);
        low.unpack(&Tar::new().symlink("a", low.outside().to_str().unwrap()).end()).unwrap();
        let top = Layer::new();
        let outcome = top.unpack(&Tar::new().file("a/f", "").end()).unwrap();
        patch(&top, &outcome.implicit_dirs, &[&low]);
        assert_eq!(top.picture()["a"], "dir 0755");
    }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn attributes_too_large_for_an_inode_are_copied() {
    let value = vec![b'v'; 3000];
    let xattrs: [(&str, &[u8]); 2] = [("SCHILY.xattr.user.a", &value), ("SCHILY.xattr.user.b", b"1")];
    let low = Tar::new().pax(&xattrs).item(&dir("a", 0o700, 4_000_000_000)).pax(&xattrs).item(&dir("a/b", 0o701, 1));
    let got = patched(&[low, Tar::new().file("a/b/f", "1").file("a/.wh.x", "")], &["a", "a/b", "a/b/f"]);
    let long = format!("user.a={} user.b=1", "v".repeat(3000));
    assert_eq!(got[0], format!("dir 0700 4000000000:4000000000 {long}"));
    assert_eq!(got[1..], [format!("dir 0701 1:1 {long}"), "file 0644 1".to_owned()]);
}

/// Takes the attributes over from trees, the topmost first.
fn patch(layer: &Layer, implicit: &[Vec<u8>], lower_top_first: &[&Layer]) {
    let below = |path: &[u8]| {
        for lower in lower_top_first {
            match lower.find(path) {
                PathLookup::Here(attributes) => return Ok(Some(attributes)),
                PathLookup::Hidden => return Ok(None),
                PathLookup::Absent => {}
            }
        }
        Ok(None)
    };
    layer.patch(implicit, &below);
}
