//! EROFS files whose files have their blocks on other EROFS files: whatever tree was written is written once more by reference, and is
//! the same tree to the kernel, to `fsck.erofs` and to the reader.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use super::model::{Model, What, bytes, options, plain};
use super::mounted::{check, check_elsewhere, fsck_with, image};
use super::property::{play, step};
use super::shapes::builder;
use crate::testing::{exercise_with, mutate, numbers};
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
            Kind::File => to.writer.file_of(image, &info, &attributes, to.devices).unwrap(),
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
    devices: &'a [Device],
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
    again(&from, &root, top, &mut Again { writer: &mut writer, devices: &[device], links: HashMap::new() });
    writer.finish().unwrap();
    (dir, path, devices)
}

fn open(path: &Path, devices: &[PathBuf]) -> Result<Reader<File>, ReadError> {
    Reader::open_with(File::open(path).unwrap(), devices.iter().map(|path| File::open(path).unwrap()).collect())
}

/// Compares the content that a reader finds in both.
fn compare_content(model: &Model, one: &Reader<File>, two: &Reader<File>) {
    let mut left = vec![(0, Vec::new())];
    while let Some((node, path)) = left.pop() {
        let What::Dir(entries) = &model.nodes[node].what else { continue };
        for (name, child) in entries {
            let path = if path.is_empty() { name.clone() } else { [&path[..], b"/", name].concat() };
            if matches!(&model.nodes[*child].what, What::File(_, size) if *size < 4 << 20) {
                let read = |image: &Reader<File>| {
                    let info = image.walk_path(&path).unwrap().unwrap();
                    let mut bytes = vec![0; usize::try_from(info.size).unwrap()];
                    assert_eq!(image.read(&info, 0, &mut bytes).unwrap(), bytes.len());
                    bytes
                };
                assert!(read(one) == read(two));
            }
            left.push((*child, path));
        }
    }
}

fn judge(first: &Path, model: &Model, count: u16) -> u64 {
    let (_dir, path, devices) = refer(first, count);
    check_elsewhere(&path, &devices, model);
    let (one, two) = (Reader::open(File::open(first).unwrap()).unwrap(), open(&path, &devices).unwrap());
    compare_content(model, &one, &two);
    two.check().unwrap();
    std::fs::metadata(&path).unwrap().len()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, ..ProptestConfig::default() })]

    #[test]
    #[ignore = "needs root: scripts/test.sh"]
    fn any_tree_comes_back_by_reference(steps in prop::collection::vec(step(), 0..80), count in 1_u16..5) {
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
#[ignore = "needs root: scripts/test.sh"]
fn an_image_of_images_refers_to_what_they_refer_to() {
    let dir = tempfile::tempdir().unwrap();
    let (mut builder, path) = builder(&dir);
    builder.file(0, b"one", bytes(1, 100_000), 4096, &plain(0o640, 1));
    builder.file(0, b"two", bytes(2, 4096), 4096, &plain(0o640, 1));
    let (_, model) = check(builder, &path);
    let (_second, middle, devices) = refer(&path, 2);
    let image_of = open(&middle, &devices).unwrap();
    let third = tempfile::tempdir().unwrap();
    let (file, last) = image(&third);
    let mut writer = Writer::new(file, options(Options::MEMORY)).unwrap();
    writer.reserve_devices(3).unwrap();
    let all: Vec<PathBuf> = [middle.clone()].into_iter().chain(devices).collect();
    let known: Vec<Device> = all.iter().map(|path| writer.add_device(b"x", blocks(path)).unwrap()).collect();
    let root = image_of.inode(image_of.root()).unwrap();
    let top = writer.root();
    again(&image_of, &root, top, &mut Again { writer: &mut writer, devices: &known, links: HashMap::new() });
    writer.finish().unwrap();
    check_elsewhere(&last, &all, &model);
}

#[test]
fn what_is_not_there_is_refused() {
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
#[ignore = "needs root: scripts/test.sh"]
fn a_reader_wants_the_very_devices() {
    let dir = tempfile::tempdir().unwrap();
    let (mut builder, path) = builder(&dir);
    builder.file(0, b"file", bytes(1, 9000), 4096, &plain(0o640, 1));
    builder.file(0, b"blocks", bytes(1, 8192), 4096, &plain(0o640, 1));
    check(builder, &path);
    let (_second, middle, devices) = refer(&path, 2);
    fsck_with(&middle, &devices);
    assert!(matches!(Reader::open(File::open(&middle).unwrap()), Err(ReadError::Unsupported { .. })));
    assert!(matches!(open(&middle, &devices[..1]), Err(ReadError::Unsupported { .. })));
    assert!(matches!(open(&path, &devices), Err(ReadError::Unsupported { .. })));
    let short: Vec<PathBuf> = devices.iter().rev().cloned().collect();
    let error = open(&middle, &short).unwrap_err().to_string();
    assert!(error.contains("should have"), "{error}");
    // Spoiled EROFS files and devices of any length end in errors.
    let bytes = std::fs::read(&middle).unwrap();
    let given: Vec<Vec<u8>> = devices.iter().map(|path| std::fs::read(path).unwrap()).collect();
    assert!(exercise_with(&bytes, &given).good);
    for round in 0..4000 {
        let mut spoiled = bytes.clone();
        mutate(&mut spoiled, &mut numbers(round));
        let work = exercise_with(&spoiled, &given);
        assert!(work.by_check <= 64 * spoiled.len() as u64 + (1 << 20), "{round}: {work:?}");
    }
}

/// A second EROFS file with the same files refers to the blocks of the first.
#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_finished_image_takes_blocks_from_another() {
    let dir = tempfile::tempdir().unwrap();
    let lengths = [1, 4095, 4096, 4097, 12_288, 70_000, 524_289];
    let (mut one, path) = builder(&dir);
    for length in lengths {
        one.file(0, format!("old {length}").as_bytes(), bytes(length as u64, length), 4096, &plain(0o600, 5));
    }
    check(one, &path);
    let other = tempfile::tempdir().unwrap();
    let (mut two, second) = builder(&other);
    let below = two.directory(0, b"below", &plain(0o700, 1));
    for length in lengths {
        let mut attributes = plain(0o640, length as i64);
        attributes.xattrs = vec![(b"user.x".to_vec(), bytes(3, 30))];
        two.file(below, format!("new {length}").as_bytes(), bytes(length as u64, length), 4096, &attributes);
        two.file(0, format!("own {length}").as_bytes(), bytes(99, length), 4096, &attributes);
    }
    let (_, model) = check(two, &second);
    let (from, to) =
        (Reader::open(File::open(&path).unwrap()).unwrap(), Reader::open(File::open(&second).unwrap()).unwrap());
    let mut moved = Vec::new();
    for length in lengths {
        let at = from.walk_path(format!("old {length}").as_bytes()).unwrap().unwrap();
        let own = to.walk_path(format!("below/new {length}").as_bytes()).unwrap().unwrap();
        let blocks = |image: &Reader<File>, info: &InodeInfo| image.whole_blocks(info).div_ceil(4096);
        if blocks(&from, &at) > 0 && blocks(&from, &at) == blocks(&to, &own) {
            let spot = from.extent(&at, 0).unwrap().unwrap().at.unwrap();
            let block = u32::try_from(spot.offset / 4096).unwrap();
            moved.push(crate::Moved { nid: own.nid, device: 1, block });
        }
    }
    assert!(moved.len() >= 5, "{moved:?}");
    let devices = [second.clone(), path.clone()].map(|path| blocks(&path));
    let mut file = File::options().read(true).write(true).open(&second).unwrap();
    // What cannot be is refused, before anything is written.
    let whole = std::fs::read(&second).unwrap();
    for (devices, wrong) in [
        (&devices[..1], moved[0]),
        (&devices[..], crate::Moved { block: devices[1], ..moved[0] }),
        (&devices[..], crate::Moved { nid: to.root(), ..moved[0] }),
        (&[1; crate::DEVICES_MOST + 1][..], moved[0]),
    ] {
        assert!(matches!(crate::refer(&mut file, devices, &[wrong]), Err(crate::PatchError::Unfit(_))));
        assert!(std::fs::read(&second).unwrap() == whole);
    }
    crate::refer(&mut file, &devices, &moved).unwrap();
    let unused = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(unused.path(), bytes(1, usize::try_from(crate::BLOCK).unwrap() * devices[0] as usize)).unwrap();
    let given = [unused.path().to_owned(), path.clone()];
    check_elsewhere(&second, &given, &model);
    // It can be patched as any other.
    crate::patch(&mut file, to.root(), &plain(0o711, 3)).unwrap();
    let image = open(&second, &given).unwrap();
    assert_eq!(image.inode(image.root()).unwrap().mode, 0o711);
    assert!(matches!(crate::refer(&mut file, &devices, &moved), Err(crate::PatchError::Unfit(_))));
}
