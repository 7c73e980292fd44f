//! The rules of application, as tables: archive in, tree out. Every case is run with `openat2`, step by step, and into an image, its
//! outcome is held against the tree, and its recipe must make the archive again.

use super::support::{Layer, want};
use crate::disk::layer::Shape;
use crate::tar::build::{Item, Tar};

struct Case {
    name: &'static str,
    tar: Tar,
    /// Everything but the root.
    tree: &'static [(&'static str, &'static str)],
    implicit: &'static [&'static str],
}

fn check(cases: &[Case]) {
    for case in cases {
        for (shape, stepwise) in [(Shape::Dir, false), (Shape::Dir, true), (Shape::Erofs, false)] {
            let mut layer = Layer::of(shape);
            layer.stepwise = stepwise;
            let bytes = case.tar.clone().end();
            let outcome = layer.unpack(&bytes).unwrap_or_else(|e| panic!("{}: {e}", case.name));
            let mut tree = layer.picture();
            tree.remove(".");
            let mut wanted = want(case.tree);
            if shape == Shape::Erofs {
                // In an EROFS file, whiteouts have no owner.
                wanted.values_mut().filter(|text| text.starts_with("whiteout")).for_each(|text| text.truncate(8));
            }
            assert_eq!(tree, wanted, "{}, {shape:?}", case.name);
            let implicit: Vec<String> =
                outcome.implicit_dirs.iter().map(|p| String::from_utf8_lossy(p).into_owned()).collect();
            assert_eq!(implicit, case.implicit, "{}, {shape:?}: implicit directories", case.name);
            assert!(outcome.exact, "{}", case.name);
            assert_eq!(layer.rebuild(), bytes, "{}, {shape:?}: the recipe", case.name);
        }
    }
}

const OPAQUE: &str = "dir 0755 trusted.overlay.opaque=y";

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn plain_things() {
    check(&[
        Case { name: "nothing at all", tar: Tar::new(), tree: &[], implicit: &[""] },
        Case {
            name: "one of each kind",
            tar: Tar::new()
                .dir("./")
                .dir("d/")
                .file("d/f", "hello")
                .symlink("d/s", "../../etc/passwd")
                .link("d/h", "d/f")
                .link("d/hs", "./d/s")
                .item(&Item::new(b'6', "d/p").mode(0o620))
                .item(&Item::new(b'3', "d/null").device(1, 3).mode(0o666))
                .item(&Item::new(b'4', "d/loop").device(7, 300).mode(0o660).owner(0, 6)),
            tree: &[
                ("d", "dir 0755"),
                ("d/f", "file 0644 hello"),
                ("d/h", "file 0644 hello"),
                ("d/s", "-> ../../etc/passwd"),
                ("d/hs", "-> ../../etc/passwd"),
                ("d/p", "fifo 0620"),
                ("d/null", "char 0666 1:3"),
                ("d/loop", "block 0660 7:300 0:6"),
            ],
            implicit: &[],
        },
        Case {
            name: "old directories and odd spellings",
            tar: Tar::new().item(&Item::new(0, "old/")).file("/abs//x/", "1").file("./a/../b", "2"),
            tree: &[("old", "dir 0644"), ("abs", "dir 0755"), ("abs/x", "file 0644 1"), ("b", "file 0644 2")],
            implicit: &["", "abs"],
        },
        Case {
            name: "modes and owners",
            tar: Tar::new()
                .item(&Item::new(b'0', "suid").mode(0o4755).owner(5, 6).data("x"))
                .item(&Item::new(b'0', "world").mode(0o666))
                .item(&Item::new(b'0', "none").mode(0))
                .item(&Item::new(b'5', "sgid").mode(0o2775).owner(0, 50))
                .file("sgid/inner", "x")
                .dir("sgid/sub")
                .item(&Item::new(b'5', "tmp").mode(0o1777))
                .item(&Item::new(b'5', "closed").mode(0))
                .file("closed/inner", "y")
                .item(&Item::new(b'2', "s").link("t").owner(7, 8))
                .item(&Item::new(b'0', "big").owner(4_000_000_000, 3_000_000_000)),
            tree: &[
                ("suid", "file 4755 x 5:6"),
                ("world", "file 0666 "),
                ("none", "file 0000 "),
                ("sgid", "dir 2775 0:50"),
                ("sgid/inner", "file 0644 x"),
                ("sgid/sub", "dir 0755"),
                ("tmp", "dir 1777"),
                ("closed", "dir 0000"),
                ("closed/inner", "file 0644 y"),
                ("s", "-> t 7:8"),
                ("big", "file 0644  4000000000:3000000000"),
            ],
            implicit: &[""],
        },
        Case {
            name: "bytes that are no text",
            tar: Tar::new().file(b"\xff\xfe\n", "1").symlink("s", b"\xc3\x28"),
            tree: &[("\\xff\\xfe\\n", "file 0644 1"), ("s", "-> \\xc3(")],
            implicit: &[""],
        },
    ]);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn later_entries_win() {
    check(&[
        Case {
            name: "file over file",
            tar: Tar::new().file("a", "old").file("a", "new").file("b", "").file("b", "1"),
            tree: &[("a", "file 0644 new"), ("b", "file 0644 1")],
            implicit: &[""],
        },
        Case {
            name: "directory over directory merges and takes the later attributes",
            tar: Tar::new()
                .pax(&[("SCHILY.xattr.user.old", b"1")])
                .dir("d")
                .file("d/a", "1")
                .pax(&[("SCHILY.xattr.user.new", b"1")])
                .item(&Item::new(b'5', "d").mode(0o700).owner(1, 2))
                .file("d/b", "2"),
            tree: &[("d", "dir 0700 1:2 user.new=1"), ("d/a", "file 0644 1"), ("d/b", "file 0644 2")],
            implicit: &[""],
        },
        Case {
            name: "a directory's entry after its content",
            tar: Tar::new().file("d/e/a", "1").item(&Item::new(b'5', "d").mode(0o711).owner(3, 4)).dir("."),
            tree: &[("d", "dir 0711 3:4"), ("d/e", "dir 0755"), ("d/e/a", "file 0644 1")],
            implicit: &["d/e"],
        },
        Case {
            name: "file over directory",
            tar: Tar::new().dir("d").file("d/e/a", "content").file("d", "file"),
            tree: &[("d", "file 0644 file")],
            implicit: &[""],
        },
        Case {
            name: "directory over file and over symbolic link",
            tar: Tar::new().file("d", "x").symlink("s", "d").dir("d").dir("s").file("s/a", "1").file("d/b", "2"),
            tree: &[("d", "dir 0755"), ("s", "dir 0755"), ("s/a", "file 0644 1"), ("d/b", "file 0644 2")],
            implicit: &[""],
        },
        Case {
            name: "symbolic link over directory, and back",
            tar: Tar::new().dir("r").file("d/a", "1").symlink("d", "r").file("d/b", "2").dir("d").file("d/c", "3"),
            tree: &[("r", "dir 0755"), ("r/b", "file 0644 2"), ("d", "dir 0755"), ("d/c", "file 0644 3")],
            implicit: &[""],
        },
        Case {
            name: "the content of a hard link survives its first name",
            tar: Tar::new().file("a", "first").link("b", "a").file("a", "second").link("c", "a"),
            tree: &[("a", "file 0644 second"), ("b", "file 0644 first"), ("c", "file 0644 second")],
            implicit: &[""],
        },
        Case {
            name: "hard link over something, and onto itself",
            tar: Tar::new().file("a", "1").file("b", "2").link("b", "a").link("a", "a").link("b", "a"),
            tree: &[("a", "file 0644 1"), ("b", "file 0644 1")],
            implicit: &[""],
        },
        Case {
            name: "replaced again and again",
            tar: Tar::new().file("d/a", "1").file("d", "2").dir("d").file("d/a", "3").file("d/a", "4").file("d", "5"),
            tree: &[("d", "file 0644 5")],
            implicit: &[""],
        },
    ]);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn parents_through_symbolic_links() {
    check(&[
        Case {
            name: "relative, absolute and dangling targets stay inside",
            tar: Tar::new()
                .dir("usr")
                .dir("usr/lib")
                .symlink("lib", "usr/lib")
                .symlink("abs", "/usr/lib")
                .symlink("up", "../../../usr")
                .symlink("far", "not/there")
                .file("lib/a", "1")
                .file("abs/b", "2")
                .file("up/lib/c", "3")
                .file("far/d", "4"),
            tree: &[
                ("usr", "dir 0755"),
                ("usr/lib", "dir 0755"),
                ("lib", "-> usr/lib"),
                ("abs", "-> /usr/lib"),
                ("up", "-> ../../../usr"),
                ("far", "-> not/there"),
                ("usr/lib/a", "file 0644 1"),
                ("usr/lib/b", "file 0644 2"),
                ("usr/lib/c", "file 0644 3"),
                ("not", "dir 0755"),
                ("not/there", "dir 0755"),
                ("not/there/d", "file 0644 4"),
            ],
            implicit: &["", "not", "not/there"],
        },
        Case {
            name: "links through links, whiteouts and hard links below them",
            tar: Tar::new()
                .dir("real")
                .symlink("one", "two/.")
                .symlink("two", "./real/../real")
                .file("one/f", "1")
                .link("two/g", "one/f")
                .file("one/.wh.h", "")
                .symlink("two/loop", "."),
            tree: &[
                ("real", "dir 0755"),
                ("one", "-> two/."),
                ("two", "-> ./real/../real"),
                ("real/f", "file 0644 1"),
                ("real/g", "file 0644 1"),
                ("real/h", "whiteout"),
                ("real/loop", "-> ."),
            ],
            implicit: &[""],
        },
    ]);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn whiteouts() {
    check(&[
        Case {
            name: "whiteouts of things below, with their owner",
            tar: Tar::new()
                .file(".wh.a", "")
                .item(&Item::new(b'0', "d/.wh.b").owner(5, 6))
                .dir("d/.wh.c")
                .symlink(".wh.s", "x"),
            tree: &[
                ("a", "whiteout"),
                ("d", "dir 0755"),
                ("d/b", "whiteout 5:6"),
                ("d/c", "whiteout"),
                ("s", "whiteout"),
            ],
            implicit: &["", "d"],
        },
        Case {
            name: "a character device 0:0 is one, too",
            tar: Tar::new().item(&Item::new(b'3', "a").device(0, 0)).file("b", "1").item(&Item::new(b'3', "b")),
            tree: &[("a", "whiteout"), ("b", "file 0644 1")],
            implicit: &[""],
        },
        Case {
            name: "file before and after its whiteout",
            tar: Tar::new().file("a", "1").file(".wh.a", "").file(".wh.b", "").file("b", "2"),
            tree: &[("a", "file 0644 1"), ("b", "file 0644 2")],
            implicit: &[""],
        },
        Case {
            name: "directory before and after its whiteout",
            tar: Tar::new().dir("a").file("a/x", "1").file(".wh.a", "").file(".wh.b", "").dir("b").file("b/x", "2"),
            tree: &[("a", OPAQUE), ("a/x", "file 0644 1"), ("b", OPAQUE), ("b/x", "file 0644 2")],
            implicit: &[""],
        },
        Case {
            name: "an empty directory is an entry, whiteout or not",
            tar: Tar::new().dir("a").file(".wh.a", "").file(".wh.b", "").dir("b"),
            tree: &[("a", OPAQUE), ("b", OPAQUE)],
            implicit: &[""],
        },
        Case {
            name: "implicit directory before and after its whiteout",
            tar: Tar::new().file("a/x/f", "1").file(".wh.a", "").file(".wh.b", "").file("b/x/f", "2"),
            tree: &[
                ("a", OPAQUE),
                ("a/x", "dir 0755"),
                ("a/x/f", "file 0644 1"),
                ("b", OPAQUE),
                ("b/x", "dir 0755"),
                ("b/x/f", "file 0644 2"),
            ],
            implicit: &[""],
        },
        Case {
            name: "whiteouts below a whiteout, in both orders",
            tar: Tar::new()
                .file(".wh.a", "")
                .file("a/.wh.x", "")
                .file("a/.wh..wh..opq", "")
                .file("b/.wh.x", "")
                .file("b/c/.wh.x", "")
                .file(".wh.b", ""),
            tree: &[("a", "whiteout"), ("b", "whiteout")],
            implicit: &[""],
        },
        Case {
            name: "opaque before, after, and alone",
            tar: Tar::new()
                .file("a/.wh..wh..opq", "")
                .dir("a")
                .dir("b")
                .file("b/f", "1")
                .file("b/.wh..wh..opq", "")
                .file("b/.wh.g", "")
                .file("c/.wh..wh..opq", ""),
            tree: &[("a", OPAQUE), ("b", OPAQUE), ("b/f", "file 0644 1"), ("c", OPAQUE)],
            implicit: &["", "c"],
        },
        Case {
            name: "implicit directories in an opaque one take nothing from below",
            tar: Tar::new().dir("a").file("a/.wh..wh..opq", "").file("a/b/c/f", "1"),
            tree: &[("a", OPAQUE), ("a/b", "dir 0755"), ("a/b/c", "dir 0755"), ("a/b/c/f", "file 0644 1")],
            implicit: &[""],
        },
        Case {
            name: "what aufs keeps for itself is ignored",
            tar: Tar::new()
                .dir(".wh..wh.plnk")
                .file(".wh..wh.plnk/12.34", "data")
                .file(".wh..wh.aufs", "")
                .file("a", "1"),
            tree: &[("a", "file 0644 1")],
            implicit: &[""],
        },
        Case {
            name: "files that aufs keeps are targets of hard links and no part of the tree",
            tar: Tar::new()
                .dir(".wh..wh.plnk")
                .item(&Item::new(b'0', ".wh..wh.plnk/12.34").mode(0o4750).owner(0, 6).data("twice"))
                .file("./.wh..wh.plnk/56.78", "unused")
                .link("a/first", ".wh..wh.plnk/12.34")
                .link("second", "/.wh..wh.plnk/12.34")
                .item(&Item::new(b'2', ".wh..wh.plnk/link").link("a")),
            tree: &[("a", "dir 0755"), ("a/first", "file 4750 twice 0:6"), ("second", "file 4750 twice 0:6")],
            implicit: &["", "a"],
        },
        Case {
            name: "symbolic link and device over a whiteout, whiteout over nothing twice",
            tar: Tar::new()
                .file(".wh.a", "")
                .symlink("a", "t")
                .file(".wh.b", "")
                .item(&Item::new(b'6', "b"))
                .file(".wh.c", "")
                .file(".wh.c", ""),
            tree: &[("a", "-> t"), ("b", "fifo 0644"), ("c", "whiteout")],
            implicit: &[""],
        },
    ]);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn an_opaque_root_is_reported() {
    for shape in Shape::ALL {
        let layer = Layer::of(shape);
        let outcome = layer.unpack(&Tar::new().file(".wh..wh..opq", "").file("a/b", "1").end()).unwrap();
        assert!(outcome.root_opaque);
        assert_eq!(outcome.implicit_dirs, [b"".to_vec()], "what is below the root is hidden");
        assert_eq!(layer.picture()["."], OPAQUE, "{shape:?}");
    }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn links_to_files_that_aufs_keeps_are_refused_where_there_is_none() {
    let cases = [
        ("no such file", Tar::new().file(".wh..wh.plnk/1", "").link("a", ".wh..wh.plnk/2"), "is not in the layer"),
        (
            "another directory",
            Tar::new().file("d/.wh..wh.plnk/1", "").link("a", "d/.wh..wh.plnk/1"),
            "is not in the layer",
        ),
        ("below it", Tar::new().file(".wh..wh.plnk/d/1", "").link("a", ".wh..wh.plnk/d/1"), "is not in the layer"),
        (
            "no regular file",
            Tar::new().symlink(".wh..wh.plnk/1", "t").link("a", ".wh..wh.plnk/1"),
            "is not in the layer",
        ),
        ("through a link", Tar::new().symlink("l", ".wh..wh.plnk").file("l/1", "x"), "aufs keeps for itself"),
        (
            "through a link, once it exists",
            Tar::new().file(".wh..wh.plnk/1", "x").symlink("l", ".wh..wh.plnk").file("l/2", "x"),
            "aufs keeps for itself",
        ),
    ];
    for (name, tar, want) in cases {
        for shape in Shape::ALL {
            let error = Layer::of(shape).unpack(&tar.clone().end()).expect_err(name).to_string();
            assert!(error.contains(want), "{name}, {shape:?}: {error}");
        }
    }
}
