//! Trees at the edges of what the format holds.

use super::model::{Builder, bytes, options, plain};
use super::mounted::{check, image};
use crate::{Attributes, Options, Special};

pub(super) fn builder(dir: &tempfile::TempDir) -> (Builder<std::fs::File>, std::path::PathBuf) {
    let (file, path) = image(dir);
    (Builder::new(file, options(Options::MEMORY)), path)
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn empty_image_has_only_a_root() {
    let dir = tempfile::tempdir().unwrap();
    let (builder, path) = builder(&dir);
    let (written, _) = check(builder, &path);
    assert_eq!((written.size, written.inodes, written.directories), (4096, 1, 1));
}

/// Lengths around blocks, with tails next to their inode or not, and with and without extended attributes between.
#[test]
#[ignore = "needs root: scripts/test.sh"]
fn files_of_every_length_around_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let (mut builder, path) = builder(&dir);
    let xattr = |n: usize| (b"user.some".to_vec(), bytes(n as u64, 20 + n % 7));
    let lengths = (0..40).chain(3980..4180).chain(8150..8210).chain([12_287, 12_288, 12_289, 65_535, 65_536]);
    for (n, length) in lengths.chain([300_000, 524_288, 524_289, 1 << 20, 1_500_001]).enumerate() {
        let mut attributes = Attributes { uid: 70_000 * u32::from(n % 3 == 0), ..plain(0o640, n as i64 % 3) };
        builder.file(0, format!("plain-{length}").as_bytes(), bytes(1, length), 70_001, &attributes);
        attributes.xattrs.push(xattr(n));
        builder.file(0, format!("attributed-{length}").as_bytes(), bytes(2, length), 4096, &attributes);
        if n % 5 == 0 {
            builder.symlink(
                0,
                format!("link-{n}").as_bytes(),
                &vec![b'l'; length.clamp(1, 4095)],
                &attributes_of_links(n),
            );
        }
    }
    check(builder, &path);
}

fn attributes_of_links(n: usize) -> Attributes {
    Attributes { xattrs: vec![(b"trusted.t".to_vec(), bytes(n as u64, 9))], ..plain(0o777, -3) }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn names_of_every_length_and_of_any_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let (mut builder, path) = builder(&dir);
    let top = builder.directory(0, b"names", &plain(0o755, 5));
    for length in 1..=255_usize {
        builder.file(top, &vec![b'n'; length], bytes(length as u64, length), 100, &plain(0o600, 1));
    }
    // Before and behind the two names that every directory has, and bytes that are no text.
    for byte in (1..=255_u8).filter(|byte| *byte != b'/') {
        if byte != b'.' && byte != b'n' {
            builder.special(top, &[byte], Special::Fifo, &plain(0o600, 1));
        }
        builder.special(top, &[b'.', byte, b'.'], Special::Socket, &plain(0o600, 1));
        builder.directory(top, &[byte, 0xff, 0xc3], &plain(0o700, 2));
    }
    check(builder, &path);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn directory_of_a_hundred_thousand_entries() {
    let dir = tempfile::tempdir().unwrap();
    let (mut builder, path) = builder(&dir);
    let top = builder.directory(0, b"many", &plain(0o755, 5));
    // The first inode is a compact one, which has no room for so many names.
    builder.special(0, b"first", Special::Fifo, &plain(0o600, 1));
    let file = builder.file(0, b"one", bytes(1, 10), 10, &plain(0o600, 7));
    for n in 0..100_000_u64 {
        // Names of 4 to 100 bytes, in no order.
        let number = n.wrapping_mul(0x9e37_79b9) & 0xffff_ffff;
        let name = format!("{number:x}{}", "-".repeat(usize::try_from(n % 93).unwrap()));
        if n % 1000 == 0 {
            builder.directory(top, name.as_bytes(), &plain(0o711, 5));
        } else {
            builder.link(top, name.as_bytes(), file);
        }
    }
    let (_, model) = check(builder, &path);
    assert_eq!(model.links()[&file], 100_000 - 100 + 1);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn holes_take_no_space() {
    let dir = tempfile::tempdir().unwrap();
    let (mut builder, path) = builder(&dir);
    let attributes = Attributes { uid: 3, xattrs: vec![(b"user.x".to_vec(), b"y".to_vec())], ..plain(0o644, 9) };
    let mut holes = |name: &str, size: u64, pieces: &[(u64, usize)]| {
        let pieces = pieces.iter().map(|(at, length)| (*at, bytes(*at, *length))).collect();
        builder.sparse(0, name.as_bytes(), size, pieces, &attributes);
    };
    for size in [0, 1, 4095, 4096, 4097, 100_000, 1 << 20, (1 << 30) + 5, 1 << 33] {
        holes(&format!("hole-{size}"), size, &[]);
        if size > 8192 {
            holes(&format!("ends-{size}"), size, &[(0, 1), (size - 1, 1)]);
            holes(&format!("middle-{size}"), size, &[(size / 2 - 3, 7)]);
        }
        if size >= 1 << 20 {
            holes(
                &format!("many-{size}"),
                size,
                &[(5, 4096), (9000, 100), (9200, 1), (400_000, 200_000), (700_000, 1)],
            );
        }
    }
    holes("no-hole", 50_000, &[(0, 10_000), (10_000, 40_000)]);
    holes("begins", 50_000, &[(0, 10_000)]);
    holes("odd", 12_000, &[(4096, 4096)]);
    // Maps of four bytes for each 32 KiB of the longest, and chunks of theirs; nothing like their lengths.
    let (written, _) = check(builder, &path);
    assert!(written.size < 30 << 20, "{written:?}");
}

/// A file that is not said to have holes gets its zeros.
#[test]
#[ignore = "needs root: scripts/test.sh"]
fn announced_zeros_are_stored() {
    let dir = tempfile::tempdir().unwrap();
    let (mut builder, path) = builder(&dir);
    let attributes = plain(0o644, 0);
    builder.file(0, b"zeros", vec![0; 9000], 100, &attributes);
    let writer = &mut builder.writer;
    writer.begin_file(9000, &attributes).unwrap();
    writer.hole(8500).unwrap();
    writer.data(&[0; 100]).unwrap();
    writer.hole(400).unwrap();
    let inode = writer.end_file().unwrap();
    let root = writer.root();
    let before = writer.link(root, b"zeros", inode).unwrap();
    builder.model.nodes[1].entry = crate::Entry::Inode(inode);
    assert!(before.is_some());
    check(builder, &path);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn extended_attributes_up_to_the_limits() {
    let dir = tempfile::tempdir().unwrap();
    let (mut builder, path) = builder(&dir);
    let named = |name: &str, value: Vec<u8>| (name.as_bytes().to_vec(), value);
    let acl = [
        &[2, 0, 0, 0][..],
        &[1, 0, 6, 0, 255, 255, 255, 255, 4, 0, 4, 0, 255, 255, 255, 255],
        &[32, 0, 0, 0, 255, 255, 255, 255],
    ]
    .concat();
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0].to_vec();
    let sets = [
        ("one", vec![named("user.a", b"b".to_vec())]),
        ("empty", vec![named("user.a", Vec::new())]),
        ("longest", vec![named(&format!("user.{}", "n".repeat(250)), bytes(1, 65_535))]),
        ("access", vec![named("system.posix_acl_access", acl.clone()), named("security.capability", capability)]),
        ("selinux", vec![named("security.selinux", b"system_u:object_r:usr_t:s0\0".to_vec())]),
        ("opaque", vec![named("trusted.overlay.opaque", b"y".to_vec())]),
        ("many", (0..256).map(|n| named(&format!("user.{n:03}"), bytes(n, 1))).collect()),
        ("many and long", (0..200).map(|n| named(&format!("trusted.{n:03}"), bytes(n, 5000))).collect()),
        ("too many to share", (0..600).map(|n| named(&format!("trusted.{n:03}"), bytes(n, 400))).collect()),
        ("around a block", (0..40).map(|n| named(&format!("user.{n:03}"), bytes(n, 100))).collect()),
    ];
    for round in 0..3 {
        for (n, (name, xattrs)) in sets.iter().enumerate() {
            let attributes = Attributes { xattrs: xattrs.clone(), ..plain(0o644, n as i64) };
            builder.file(0, format!("{name}-{round}").as_bytes(), bytes(1, n * 900), 1000, &attributes);
            let top = builder.directory(0, format!("{name}-{round}-d").as_bytes(), &plain(0o755, 1));
            let with_default =
                if *name == "access" { vec![named("system.posix_acl_default", acl.clone())] } else { xattrs.clone() };
            builder.set(top, &Attributes { xattrs: with_default, mode: 0o755, ..attributes.clone() }, false);
            // The system calls know no `user.` attributes and no access control lists of these.
            let xattrs = xattrs.iter().filter(|(name, _)| name.starts_with(b"trusted.")).cloned().collect();
            let attributes = Attributes { xattrs, ..attributes };
            builder.special(top, b"whiteout", Special::Char(0, 0), &attributes);
            builder.special(top, b"device", Special::Block(4095, (1 << 20) - 1), &attributes);
            builder.symlink(top, b"link", b"target", &attributes);
        }
    }
    let root = Attributes { xattrs: sets[9].1.clone(), ..plain(0o1777, 77) };
    builder.set(0, &root, false);
    check(builder, &path);
}

/// Equal attributes of many inodes are written once.
#[test]
fn equal_attributes_are_shared() {
    let size = |label: &dyn Fn(u64) -> Vec<u8>| {
        let mut builder = Builder::new(Vec::new(), options(Options::MEMORY));
        for n in 0..2000_u64 {
            let xattrs = vec![(b"security.selinux".to_vec(), label(n))];
            let attributes = Attributes { xattrs, ..plain(0o644, 1) };
            builder.file(0, n.to_string().as_bytes(), Vec::new(), 1, &attributes);
        }
        builder.finish().unwrap().1.size
    };
    let (alike, different) = (size(&|_| bytes(0, 200)), size(&|n| bytes(n, 200)));
    assert!(alike + 2000 * 180 < different, "{alike} and {different}");
    // An inode, its header and a number.
    assert!(alike < 2000 * (32 + 32) + 2000 * 20 + 16_384, "{alike}");
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn deep_trees() {
    let dir = tempfile::tempdir().unwrap();
    let (mut builder, path) = builder(&dir);
    let mut at = 0;
    for n in 0..250 {
        at = builder.directory(at, format!("{n}-{}", "d".repeat(250 - n)).as_bytes(), &plain(0o755, n as i64));
    }
    builder.file(at, b"bottom", b"here".to_vec(), 1, &plain(0o600, 0));
    check(builder, &path);
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn replaced_and_removed_entries_are_absent() {
    let dir = tempfile::tempdir().unwrap();
    let (mut builder, path) = builder(&dir);
    let (attributes, data) = (plain(0o644, 1), |n| bytes(n, 100));
    let file = builder.file(0, b"file", data(1), 9, &attributes);
    builder.file(0, b"file", data(2), 9, &attributes);
    // The first one has a name again, and then another.
    builder.link(0, b"again", file);
    let top = builder.directory(0, b"top", &attributes);
    builder.link(top, b"below", file);
    let deeper = builder.directory(top, b"deeper", &attributes);
    builder.link(deeper, b"below", file);
    builder.file(deeper, b"lost", data(3), 9, &attributes);
    // With it go two of the file's names.
    builder.file(0, b"top", data(4), 9, &attributes);
    builder.unlink(0, b"file");
    builder.unlink(0, b"never");
    builder.lookup(0, b"file");
    builder.lookup(0, b"never");
    builder.lookup(0, b"top");
    let top = builder.implicit(0, b"top");
    builder.lookup(top, b"below");
    builder.link(top, b"below", file);
    builder.link(top, b"below", file);
    builder.lookup(top, b"below");
    let (written, model) = check(builder, &path);
    assert_eq!((model.links()[&file], written.inodes), (2, 3));
}

/// More than a compact inode can say needs an inode that can.
#[test]
#[ignore = "needs root: scripts/test.sh"]
fn many_names() {
    let dir = tempfile::tempdir().unwrap();
    let (mut builder, path) = builder(&dir);
    builder.special(0, b"first", Special::Fifo, &plain(0o644, 0));
    let extended = builder.file(0, b"file", bytes(1, 10), 10, &plain(0o644, 1));
    for n in 0..70_000 {
        builder.link(0, format!("name-{n}").as_bytes(), extended);
    }
    check(builder, &path);
    let mut builder = Builder::new(Vec::new(), options(Options::MEMORY));
    let compact = builder.file(0, b"file", bytes(1, 10), 10, &plain(0o644, 1));
    for n in 0..65_535 {
        builder.link(0, format!("name-{n}").as_bytes(), compact);
    }
    let error = builder.finish().unwrap_err().to_string();
    assert!(error.contains("names of inode"), "{error}");
}
