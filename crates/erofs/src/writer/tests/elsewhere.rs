//! EROFS files whose files have their blocks on other EROFS files: whatever tree was written is written once more by reference, and is
//! the same tree to the kernel and to `fsck.erofs`. The reader refuses it.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use super::model::{Model, bytes, options, plain};
use super::mounted::{check, check_elsewhere, image};
use super::property::{play, step};
use super::shapes::builder;
use crate::{
    Attributes, Device, DeviceBlock, Dir, InodeInfo, Kind, Options, ReadError, Reader, Special, WriteError, Writer,
};
use proptest::prelude::*;

/// Writes the tree of an EROFS file once more, its files by reference.
fn again(image: &Reader<File>, info: &InodeInfo, dir: Dir, to: &mut Again<'_>) {
    for entry in image.entries(info).unwrap() {
        let entry = entry.unwrap();
        let info = image.inode(entry.nid).unwrap();
        let attributes = attributes(image, &info);
        if info.kind == Kind::Directory {
            let below = to.writer.directory(dir, &entry.name).unwrap();
            to.writer.set_directory(below, &attributes, false).unwrap();
            again(image, &info, below, to);
            continue;
        }
        let known = to.links.get(&entry.nid).copied();
        let inode = known.unwrap_or_else(|| match info.kind {
            Kind::File => to.writer.file_of(image, &info, &attributes, to.device).unwrap(),
            Kind::Symlink => to.writer.symlink(&image.link_target(&info).unwrap(), &attributes).unwrap(),
            Kind::Char => to.writer.special(Special::Char(info.device.0, info.device.1), &attributes).unwrap(),
            Kind::Block => to.writer.special(Special::Block(info.device.0, info.device.1), &attributes).unwrap(),
            Kind::Fifo => to.writer.special(Special::Fifo, &attributes).unwrap(),
            Kind::Socket => to.writer.special(Special::Socket, &attributes).unwrap(),
            Kind::Directory => unreachable!("seen to above"),
        });
        to.links.insert(entry.nid, inode);
        to.writer.link(dir, &entry.name, inode).unwrap();
    }
}

struct Again<'a> {
    writer: &'a mut Writer<File>,
    device: Device,
    links: HashMap<crate::Nid, crate::Inode>,
}

fn attributes(image: &Reader<File>, info: &InodeInfo) -> Attributes {
    let InodeInfo { mode, uid, gid, mtime, .. } = *info;
    Attributes { mode, uid, gid, mtime, xattrs: image.xattrs(info).unwrap() }
}

fn blocks(path: &Path) -> u32 {
    u32::try_from(std::fs::metadata(path).unwrap().len() / crate::BLOCK).unwrap()
}

/// An EROFS file with the tree of `first`, whose files are there. It has that one as its last device, of `count`.
fn refer(first: &Path, count: u16) -> (tempfile::TempDir, PathBuf, Vec<PathBuf>) {
    let dir = tempfile::tempdir().unwrap();
    let (file, path) = image(&dir);
    let mut writer = Writer::new(file, options(Options::MEMORY)).unwrap();
    writer.reserve_devices(count).unwrap();
    let mut devices = Vec::new();
    for number in 1..count {
        let other = dir.path().join(format!("device-{number}"));
        std::fs::write(&other, bytes(number.into(), 4096 * usize::from(number % 7 + 1))).unwrap();
        writer.add_device(b"another", blocks(&other)).unwrap();
        devices.push(other);
    }
    let device = writer.add_device(b"the first", blocks(first)).unwrap();
    assert_eq!(device.number(), count);
    devices.push(first.to_owned());
    let from = Reader::open(File::open(first).unwrap()).unwrap();
    let root = from.inode(from.root()).unwrap();
    let top = writer.root();
    writer.set_directory(top, &attributes(&from, &root), false).unwrap();
    again(&from, &root, top, &mut Again { writer: &mut writer, device, links: HashMap::new() });
    writer.finish().unwrap();
    (dir, path, devices)
}

fn judge(first: &Path, model: &Model, count: u16) -> u64 {
    let (_dir, path, devices) = refer(first, count);
    check_elsewhere(&path, &devices, model);
    std::fs::metadata(&path).unwrap().len()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, ..ProptestConfig::default() })]

    #[test]
    #[ignore = "needs root: scripts/test.sh"]
    fn any_tree_round_trips_by_reference(steps in prop::collection::vec(step(), 0..80), count in 1_u16..5) {
        let dir = tempfile::tempdir().unwrap();
        let (file, path) = image(&dir);
        let (_, model) = check(play(&steps, file, Options::MEMORY), &path);
        judge(&path, &model, count);
    }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn files_of_every_length_by_reference() {
    let dir = tempfile::tempdir().unwrap();
    let (mut builder, path) = builder(&dir);
    let long = |n: usize| (format!("user.{n}").into_bytes(), bytes(n as u64, 900));
    for (n, length) in
        [1, 4095, 4096, 4097, 8191, 8192, 12_288, 12_289, 70_000, 524_289, 3 << 20].into_iter().enumerate()
    {
        builder.file(0, format!("plain-{length}").as_bytes(), bytes(1, length), 70_001, &plain(0o640, n as i64 % 2));
        // So many attributes that no tail fits next to them.
        let mut attributes = plain(0o600, 0);
        attributes.xattrs = (0..200).map(|k| (format!("user.{n}-{k}").into_bytes(), bytes(k, 20))).collect();
        builder.file(0, format!("full-{length}").as_bytes(), bytes(3, length), 4096, &attributes);
        attributes.xattrs = (0..2).map(long).collect();
        builder.file(0, format!("some-{length}").as_bytes(), bytes(2, length), 4096, &attributes);
        let size = (length as u64) << 12;
        builder.sparse(
            0,
            format!("sparse-{length}").as_bytes(),
            size,
            vec![(size / 2, bytes(7, 6000.min(length)))],
            &plain(0o600, 0),
        );
    }
    let (written, model) = check(builder, &path);
    let size = judge(&path, &model, 1);
    assert!(size * 3 < written.size, "{size} of {}", written.size);
    // As many devices as one EROFS file of many layers has, and a table of several blocks.
    judge(&path, &model, 40);
}

#[test]
fn invalid_references_are_refused() {
    let new = || {
        let mut writer = Writer::new(Vec::new(), options(Options::MEMORY)).unwrap();
        writer.reserve_devices(2).unwrap();
        let device = writer.add_device(b"one", 10).unwrap();
        (writer, device)
    };
    let attributes = plain(0o600, 0);
    let (mut writer, device) = new();
    writer.file_at(10 * 4096, &attributes, DeviceBlock { device, block: 0 }, b"").unwrap();
    let cases: [(u64, u32, &[u8]); 6] =
        [(10 * 4096 + 1, 0, b""), (4096, 10, b""), (0, 0, b""), (3, 0, b"abc"), (4099, 0, b"ab"), (4099, 10, b"abc")];
    for (size, block, tail) in cases {
        let (mut writer, device) = new();
        let error = writer.file_at(size, &attributes, DeviceBlock { device, block }, tail).unwrap_err();
        assert!(matches!(error, WriteError::Misused(_)), "{size} at {block}: {error}");
    }
    let (mut writer, _) = new();
    assert!(matches!(writer.reserve_devices(1), Err(WriteError::Misused(_))));
    let (mut writer, _) = new();
    writer.add_device(b"two", 1).unwrap();
    assert!(matches!(writer.add_device(b"three", 1), Err(WriteError::Beyond { .. })));
    for (tag, blocks) in [(&b""[..], 1), (&[b't'; 65], 1), (b"long", u32::MAX)] {
        let (mut writer, _) = new();
        assert!(matches!(writer.add_device(tag, blocks), Err(WriteError::Beyond { .. })));
    }
}

#[test]
fn reader_refuses_further_devices() {
    let dir = tempfile::tempdir().unwrap();
    let (mut builder, path) = builder(&dir);
    builder.file(0, b"file", bytes(1, 9000), 4096, &plain(0o640, 1));
    builder.finish().unwrap();
    Reader::open(File::open(&path).unwrap()).unwrap().check().unwrap();
    for count in [1, 2] {
        let (_second, on_devices, _) = refer(&path, count);
        let error = Reader::open(File::open(&on_devices).unwrap()).unwrap_err();
        assert!(matches!(error, ReadError::Unsupported { .. }), "{error}");
        assert_eq!(error.to_string(), "the image uses further devices, which is not supported");
    }
}
