//! Implicit directories get their attributes in an EROFS file that is finished.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use super::model::{Builder, bytes, options, plain};
use super::mounted::{Mounted, check_again, image, through};
use crate::{Attributes, Nid, Options, PatchError, patch};

/// The number of a directory, which the kernel tells.
fn nid(path: &std::path::Path, name: &str) -> Nid {
    let mounted = Mounted::new(path);
    Nid(fs::metadata(through(&mounted.root(), std::ffi::OsStr::new(name))).unwrap().ino())
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn attributes_can_be_set_later() {
    let dir = tempfile::tempdir().unwrap();
    let (file, path) = image(&dir);
    let mut builder = Builder::new(file, options(Options::MEMORY));
    let names = ["few", "some", "many"];
    let mut dirs = vec![0];
    for (name, count) in names.into_iter().zip([1, 60, 3000]) {
        let top = builder.implicit(0, name.as_bytes());
        for n in 0..count {
            builder.file(top, n.to_string().as_bytes(), bytes(n, 50), 50, &plain(0o600, 1));
        }
        dirs.push(top);
    }
    let explicit = builder.directory(0, b"explicit", &plain(0o700, 1));
    builder.file(explicit, b"file", bytes(1, 5000), 500, &plain(0o600, 1));
    let (file, written, mut model) = builder.finish().unwrap();
    drop(file);
    check_again(&path, &model);

    let set = |count: u64, length: usize| -> Vec<(Vec<u8>, Vec<u8>)> {
        (0..count).map(|n| (format!("trusted.{n}").into_bytes(), bytes(n, length))).collect()
    };
    let rounds = [
        ("nothing", set(0, 0), true),
        ("little", set(3, 10), true),
        ("what fits", set(20, 30), true),
        ("longer than its block", set(2, 65_535), false),
        ("many, for the end", set(255, 300), false),
        ("more than can be shared", set(258, 40), false),
        ("nothing again", set(0, 0), false),
    ];
    let mut image = File::options().read(true).write(true).open(&path).unwrap();
    for (round, (what, xattrs, stays)) in rounds.into_iter().enumerate() {
        for (name, node) in ["."].into_iter().chain(names).zip(&dirs) {
            let number = nid(&path, name);
            let attributes = Attributes {
                mode: 0o1777,
                uid: 70_000 + u32::try_from(round).unwrap(),
                gid: 5,
                mtime: (-5, 6),
                xattrs: xattrs.clone(),
            };
            patch(&mut image, number, &attributes).unwrap_or_else(|error| panic!("{what}, {name}: {error}"));
            model.nodes[*node].attributes = attributes;
        }
        check_again(&path, &model);
        let grown = image.metadata().unwrap().len() > written.size;
        assert_eq!(grown, !stays, "{what}");
    }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn patch_without_room_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (file, path) = image(&dir);
    let mut builder = Builder::new(file, options(Options::MEMORY));
    let explicit = builder.directory(0, b"explicit", &plain(0o700, 1));
    let inode = builder.file(explicit, b"file", bytes(1, 5000), 500, &plain(0o600, 1));
    builder.implicit(0, b"implicit");
    let (mut file, _, model) = builder.finish().unwrap();
    let implicit = nid(&path, "implicit");
    let before = fs::read(&path).unwrap();
    let attributes = plain(0o755, 9);
    let many = (0..400).map(|n| (format!("user.{n}").into_bytes(), vec![0; 100])).collect();
    let cases = [
        (nid(&path, "explicit"), attributes.clone(), "block of its own"),
        // The first inode has its block's beginning, but it is a file.
        (model.nid(inode), attributes.clone(), "no directory"),
        (Nid(u64::MAX), attributes.clone(), "no such inode"),
        (Nid(1 << 40), attributes.clone(), "no such inode"),
        (Nid(0), attributes.clone(), "block of its own"),
        (implicit, Attributes { xattrs: many, ..attributes.clone() }, "extended attributes"),
        (implicit, Attributes { mode: 0o10_000, ..attributes.clone() }, "permission bits"),
    ];
    for (number, attributes, word) in cases {
        let error = patch(&mut file, number, &attributes).unwrap_err().to_string();
        assert!(error.contains(word), "{number:?}: {error}");
    }
    assert!(fs::read(&path).unwrap() == before);
    // EROFS files that are damaged, cut off, or no EROFS files.
    let mut damaged = before.clone();
    damaged[1030] ^= 1;
    let cut = before[..before.len() - 4096].to_vec();
    for mut image in [damaged, cut, Vec::new(), vec![0; 8192]] {
        assert!(matches!(patch(&mut image, implicit, &attributes), Err(PatchError::Unfit(_))));
    }
    check_again(&path, &model);
}
