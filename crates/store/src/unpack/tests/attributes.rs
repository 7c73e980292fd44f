//! Times, extended attributes, access control lists, capabilities, sparse files, accounting.

use std::error::Error as _;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::support::{Layer, xattrs};
use crate::disk::layer::Shape;
use crate::tar::build::{Item, MTIME, Tar};
use crate::unpack::UnpackError;

fn times(path: &Path) -> ((i64, i64), (i64, i64)) {
    let meta = fs::symlink_metadata(path).unwrap();
    ((meta.mtime(), meta.mtime_nsec()), (meta.atime(), meta.atime_nsec()))
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn times_of_everything_with_nanoseconds() {
    let layer = Layer::new();
    let at: &[(&str, &[u8])] = &[("mtime", b"1600000000.123456789"), ("atime", b"1600000001.5")];
    let tar = Tar::new()
        .pax(at)
        .dir("./")
        .pax(at)
        .dir("d")
        .pax(at)
        .file("d/f", "1")
        .pax(at)
        .symlink("d/s", "t")
        .pax(at)
        .item(&Item::new(b'6', "d/p"))
        .pax(at)
        .item(&Item::new(b'5', "closed").mode(0o1700))
        .file("d/later", "1")
        .pax(&[("mtime", b"-1.5")])
        .file("d/old", "")
        .pax(&[("mtime", b"50"), ("atime", b"40")])
        .file("d/read-before-written", "")
        .file("i/x", "");
    let bytes = tar.end();
    layer.unpack(&bytes).unwrap();
    let want = ((1_600_000_000, 123_456_789), (1_600_000_001, 500_000_000));
    for path in [".", "d", "d/s", "d/p", "closed"] {
        assert_eq!(times(&layer.fs().join(path)), want, "{path}");
    }
    let plain = i64::try_from(MTIME).unwrap();
    assert_eq!(times(&layer.fs().join("d/read-before-written")), ((50, 0), (50, 0)));
    assert_eq!(times(&layer.fs().join("i")), ((0, 0), (0, 0)), "the same everywhere");
    let image = Layer::of(Shape::Erofs);
    image.unpack(&bytes).unwrap();
    for layer in [&layer, &image] {
        layer.inspect(|root| {
            let time = |path: &str| times(&root.join(path)).0;
            for path in [".", "d", "d/f", "d/s", "d/p", "closed"] {
                assert_eq!(time(path), want.0, "{path}, {:?}", layer.shape);
            }
            assert_eq!((time("d/later"), time("d/old")), ((plain, 0), (-2, 500_000_000)), "{:?}", layer.shape);
            assert_eq!((time("i"), time("i/x")), ((0, 0), (plain, 0)), "{:?}", layer.shape);
        });
    }
}

/// cap_net_raw=ep, version 2.
const CAPABILITY: &[u8] = b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn extended_attributes_and_capabilities() {
    let tar = Tar::new()
        .pax(&[("SCHILY.xattr.security.capability", CAPABILITY), ("SCHILY.xattr.user.a", b"\0\xff")])
        .item(&Item::new(b'0', "ping").mode(0o4755).owner(3, 4).data("x"))
        .pax(&[("LIBARCHIVE.xattr.user.b", b"aGVsbG8")])
        .dir("d")
        .pax(&[("SCHILY.xattr.user.no", b"1"), ("SCHILY.xattr.security.other", b"yes")])
        .symlink("s", "t")
        .pax(&[("SCHILY.xattr.user.no", b"1")])
        .item(&Item::new(b'6', "p").mode(0o640))
        .end();
    for shape in Shape::ALL {
        let layer = Layer::of(shape);
        let outcome = layer.unpack(&tar).unwrap();
        layer.inspect(|root| {
            let ping = root.join("ping");
            assert_eq!(xattrs(&ping)["security.capability"], CAPABILITY);
            assert_eq!(xattrs(&ping)["user.a"], b"\0\xff");
            let meta = fs::metadata(&ping).unwrap();
            assert_eq!((meta.mode() & 0o7777, meta.uid(), meta.gid()), (0o4755, 3, 4), "neither is lost to the other");
            assert_eq!(xattrs(&root.join("d"))["user.b"], b"hello");
            assert_eq!(xattrs(&root.join("s"))["security.other"], b"yes");
            assert_eq!(fs::symlink_metadata(root.join("p")).unwrap().mode() & 0o7777, 0o640);
        });
        assert_eq!(outcome.skipped_xattrs, 2, "user.* on a symbolic link and on a fifo, {shape:?}");
    }
}

/// As with containerd, layers may have the labels that the kernel uses where SELinux, IMA and EVM are in force; `trusted.*` they
/// may not.
#[test]
#[ignore = "needs root: scripts/test.sh"]
fn labels_and_signatures_are_as_the_layer_has_them() {
    let labels: &[(&str, &[u8])] = &[
        ("SCHILY.xattr.security.selinux", b"system_u:object_r:container_file_t:s0\0"),
        ("SCHILY.xattr.security.ima", &[&b"\x04\x04"[..], &[7; 32]].concat()),
        ("SCHILY.xattr.security.evm", b"\x05\x02\x04 signature"),
        ("SCHILY.xattr.security.capability", CAPABILITY),
        ("SCHILY.xattr.trusted.label", b"no"),
    ];
    let tar =
        Tar::new().pax(labels).file("f", "x").pax(&labels[..1]).dir("d").pax(&labels[..1]).symlink("s", "t").end();
    for shape in Shape::ALL {
        let layer = Layer::of(shape);
        let outcome = layer.unpack(&tar).unwrap();
        assert_eq!(outcome.skipped_xattrs, 1, "trusted.*, {shape:?}");
        layer.inspect(|root| {
            let found = xattrs(&root.join("f"));
            for (name, value) in &labels[..4] {
                let name = &name["SCHILY.xattr.".len()..];
                assert_eq!(found.get(name).map(Vec::as_slice), Some(*value), "{name}, {shape:?}");
            }
            assert_eq!(found.len(), 4, "{shape:?}");
            for path in ["d", "s"] {
                assert_eq!(xattrs(&root.join(path))["security.selinux"], labels[0].1, "{path}, {shape:?}");
            }
        });
    }
}

/// EROFS files treat attributes as the kernel treats those of files.
#[test]
#[ignore = "needs root: scripts/test.sh"]
fn attributes_that_are_not_taken_as_they_are() {
    // u::rwx, g::r-x, o::---: a mode says it.
    let base: &[u8] = &[&ACL[..12], &ACL[20..28], &ACL[36..]].concat();
    let odd: &[u8] = &[&ACL[..4], &ACL[12..20]].concat();
    let values: &[(&str, &[u8])] = &[
        ("system.posix_acl_access", ACL),
        ("system.posix_acl_access", base),
        ("system.posix_acl_access", b""),
        ("system.posix_acl_access", &ACL[..4]),
        ("system.posix_acl_access", &ACL[..20]),
        ("system.posix_acl_access", odd),
        ("system.posix_acl_access", b"\x01\0\0\0"),
        ("system.posix_acl_default", ACL),
        ("system.posix_acl_default", base),
        ("system.posix_acl_default", &ACL[..20]),
        ("system.posix_acl_default", b""),
        ("system.posix_acl_default", b"\x01\0\0\0"),
        ("system.other", b"1"),
        ("other", b"1"),
        ("user.", b"1"),
        ("user.x", b""),
        ("security.capability", CAPABILITY),
        ("security.capability", &CAPABILITY[..19]),
        ("security.x", b"1"),
        ("trusted.x", b"1"),
        ("trusted.overlay.opaque", b"y"),
        ("user.overlay.opaque", b"y"),
    ];
    for flag in *b"05236" {
        for (name, value) in values {
            let key = format!("SCHILY.xattr.{name}");
            let item = Item::new(flag, "it").mode(0o1712).owner(1, 2).device(1, 3).link("t");
            let tar = Tar::new().pax(&[(&key, value)]).item(&item).end();
            let got = Shape::ALL.map(|shape| {
                let layer = Layer::of(shape);
                let outcome = layer.unpack(&tar).map_err(|error| format!("{error}: {:?}", error.source()));
                outcome.map(|outcome| (layer.picture()["it"].clone(), outcome.skipped_xattrs))
            });
            assert_eq!(got[0], got[1], "{} {name}={}", char::from(flag), value.escape_ascii());
        }
    }
}

/// u::rwx, user 7:rwx, g::r-x, m::rwx, o::---
const ACL: &[u8] = b"\x02\0\0\0\x01\0\x07\0\xff\xff\xff\xff\x02\0\x07\0\x07\0\0\0\x04\0\x05\0\xff\xff\xff\xff\x10\0\x07\0\xff\xff\xff\xff\x20\0\0\0\xff\xff\xff\xff";

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn access_control_lists() {
    let both: &[(&str, &[u8])] =
        &[("SCHILY.xattr.system.posix_acl_access", ACL), ("SCHILY.xattr.system.posix_acl_default", ACL)];
    let tar = Tar::new()
        .pax(both)
        .item(&Item::new(b'5', "d").mode(0o770))
        .file("d/plain", "1")
        .dir("d/sub")
        .pax(&both[..1])
        .item(&Item::new(b'0', "d/listed").mode(0o770))
        .end();
    for shape in Shape::ALL {
        let layer = Layer::of(shape);
        layer.unpack(&tar).unwrap();
        layer.inspect(|root| {
            let d = xattrs(&root.join("d"));
            assert_eq!((d["system.posix_acl_access"].as_slice(), d["system.posix_acl_default"].as_slice()), (ACL, ACL));
            for path in ["d/plain", "d/sub"] {
                assert!(xattrs(&root.join(path)).is_empty(), "{path} must not inherit: the archive says otherwise");
            }
            assert_eq!(xattrs(&root.join("d/listed"))["system.posix_acl_access"], ACL);
        });
        assert_eq!(layer.picture()["d/plain"], "file 0644 1");
        let mut few = Layer::of(shape);
        few.limits.default_acl_bytes = 50;
        let error = few.unpack(&Tar::new().pax(both).dir("a").pax(both).dir("b").end()).unwrap_err();
        assert!(error.to_string().contains("bytes of default access control lists up to here, over the limit of 50"));
    }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn what_the_store_s_own_directory_has_is_not_inherited() {
    let layer = Layer::new();
    fs::set_permissions(layer.fs(), fs::Permissions::from_mode(0o2777)).unwrap();
    rustix::fs::setxattr(layer.fs(), "system.posix_acl_default", ACL, rustix::fs::XattrFlags::empty()).unwrap();
    std::os::unix::fs::chown(layer.fs(), Some(5), Some(5)).unwrap();
    layer.unpack(&Tar::new().file("d/f", "1").end()).unwrap();
    let picture = layer.picture();
    assert_eq!(
        (picture["."].as_str(), picture["d"].as_str(), picture["d/f"].as_str()),
        ("dir 0755", "dir 0755", "file 0644 1")
    );
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn sparse_files_stay_sparse() {
    let tar = Tar::new()
        .pax(&[("GNU.sparse.size", b"10000000"), ("GNU.sparse.map", b"0,3,5000000,2"), ("GNU.sparse.name", b"s")])
        .file("x", "abcde")
        .pax(&[("GNU.sparse.size", b"4096000"), ("GNU.sparse.map", b"4096000,0"), ("GNU.sparse.name", b"hole")])
        .file("x", "")
        .end();
    for shape in Shape::ALL {
        let layer = Layer::of(shape);
        let outcome = layer.unpack(&tar).unwrap();
        layer.inspect(|root| {
            let data = fs::read(root.join("s")).unwrap();
            assert_eq!(data.len(), 10_000_000);
            assert_eq!((&data[..4], &data[5_000_000..5_000_003]), (&b"abc\0"[..], &b"de\0"[..]));
            assert!(data[3..5_000_000].iter().chain(&data[5_000_002..]).all(|byte| *byte == 0));
            assert_eq!(fs::metadata(root.join("hole")).unwrap().len(), 4_096_000);
        });
        assert_eq!(outcome.content_bytes, 14_096_000);
        assert_eq!(layer.rebuild(), tar);
        match shape {
            Shape::Dir => assert_eq!(fs::metadata(layer.fs().join("s")).unwrap().blocks() * 512, 8192),
            Shape::Erofs => assert!(usage(&layer.path()).0 < 100_000),
        }
        let mut small = Layer::of(shape);
        small.limits.layer_bytes = 9_000_000;
        let error = small.unpack(&tar).unwrap_err();
        assert!(error.to_string().contains("bytes of files up to here, over the limit of 9000000"), "{error}");
    }
}

/// Bytes and inodes, by walking.
pub(super) fn usage(path: &Path) -> (u64, u64) {
    let mut seen = std::collections::HashSet::new();
    let (mut bytes, mut todo) = (0, vec![path.to_path_buf()]);
    while let Some(path) = todo.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        if seen.insert(meta.ino()) {
            bytes += meta.blocks() * 512;
        }
        if meta.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        }
    }
    (bytes, seen.len() as u64)
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn accounting_is_what_a_walk_finds() {
    let layer = Layer::new();
    let mut tar = Tar::new();
    for size in [0_usize, 1, 511, 4095, 4096, 4097, 70_000, 1_000_000] {
        tar = tar.file(format!("files/{size}"), vec![b'x'; size]);
    }
    for at in 0..300 {
        tar = tar.file(format!("many/{at:0>200}"), "");
    }
    tar = tar
        .symlink("short", "t")
        .symlink("long", "t".repeat(300))
        .link("hard", "files/70000")
        .file(".wh.gone", "")
        .pax(&[("SCHILY.xattr.user.big", &[b'v'; 3000])])
        .file("attributes", "1")
        .pax(&[("SCHILY.xattr.user.big", &[b'v'; 3000])])
        .dir("files")
        .pax(&[("GNU.sparse.size", b"99999"), ("GNU.sparse.map", b"10,3,20,2,50000,4")])
        .file("sparse", "123456789")
        .file("files/4096", "now short")
        .file("short", "now a file")
        .file("many/.wh.x", "")
        .file("was-directory/sub/x", "1")
        .file("was-directory", "2")
        .file("marks/.wh.a", "")
        .file(".wh.marks", "");
    let outcome = layer.unpack(&tar.end()).unwrap();
    let (fs, replaced) = (usage(&layer.fs()), usage(&layer.path().join("replaced")));
    assert_eq!(outcome.inodes, fs.1 + replaced.1);
    assert_eq!(outcome.disk_bytes, fs.0 + replaced.0);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn cancellation_by_the_caller_stops_the_unpacking() {
    for shape in Shape::ALL {
        let layer = Layer::of(shape);
        let dir = fs::File::open(layer.path()).unwrap();
        let asked = std::cell::Cell::new(0);
        let cancelled = || {
            asked.set(asked.get() + 1);
            asked.get() > 10
        };
        let options = crate::unpack::UnpackOptions {
            limits: &layer.limits,
            privileged: true,
            cancelled: &cancelled,
            write_back: None,
            hollow: false,
            nested: false,
        };
        let tar = Tar::new().file("big", vec![0; 20 << 20]).end();
        let got = shape.apply(&mut &tar[..], std::os::fd::AsFd::as_fd(&dir), &options);
        assert!(matches!(got, Err(UnpackError::Cancelled)), "{got:?}");
        assert!(usage(&layer.path()).0 < 20 << 20, "inside of a big file, too");
    }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn directories_are_limited() {
    for shape in Shape::ALL {
        let mut layer = Layer::of(shape);
        layer.limits.directories = 4;
        layer.unpack(&Tar::new().file("a/b/c/f", "").end()).unwrap();
        let mut layer = Layer::of(shape);
        layer.limits.directories = 4;
        let error = layer.unpack(&Tar::new().file("a/b/c/d/f", "").end()).unwrap_err();
        assert!(error.to_string().contains("5 directories up to here, over the limit of 4"), "{error}");
    }
}
