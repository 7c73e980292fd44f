//! Recipes: round trips are among the unpacker's tests; these tests cover changed and damaged content.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;

use super::{FILE, RecipeError, Writer, rebuild};
use crate::tar::build::Tar;
use crate::unpack::tests::support::Layer;

fn rebuilt(layer: &Layer) -> Result<Vec<u8>, RecipeError> {
    let mut out = Vec::new();
    rebuild(File::open(layer.path()).unwrap().as_fd(), &mut out).map(|()| out)
}

fn unpacked() -> Layer {
    let layer = Layer::new();
    layer.unpack(&Tar::new().dir("d").file("d/f", vec![b'x'; 5000]).end()).unwrap();
    layer
}

fn is_damaged(layer: &Layer, with: &str) {
    let error = rebuilt(layer).expect_err(with);
    assert!(matches!(error, RecipeError::Damaged { .. }), "{error:?}");
    assert!(error.to_string().contains(with), "{error} does not say {with:?}");
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_layer_without_a_recipe() {
    let layer = unpacked();
    fs::remove_file(layer.path().join(FILE)).unwrap();
    assert!(matches!(rebuilt(&layer), Err(RecipeError::Missing)));
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn files_that_are_not_what_they_were() {
    let layer = unpacked();
    let file = layer.fs().join("d/f");
    fs::write(&file, vec![b'x'; 4999]).unwrap();
    is_damaged(&layer, "\"fs/d/f\" is not what it was");
    fs::remove_file(&file).unwrap();
    is_damaged(&layer, "\"fs/d/f\" is gone");
    symlink(layer.outside().join("canary"), &file).unwrap();
    is_damaged(&layer, "\"fs/d/f\" is gone");
    fs::remove_file(&file).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600), 0)
        .unwrap();
    is_damaged(&layer, "\"fs/d/f\" is not what it was");
    fs::remove_dir_all(layer.fs().join("d")).unwrap();
    symlink(layer.outside(), layer.fs().join("d")).unwrap();
    is_damaged(&layer, "\"fs/d/f\" is gone");
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn recipes_that_are_not_what_they_were() {
    let layer = unpacked();
    let path = layer.path().join(FILE);
    let good = fs::read(&path).unwrap();
    let plain = zstd::decode_all(&good[..]).unwrap();
    for cut in 0..good.len() {
        fs::write(&path, &good[..cut]).unwrap();
        rebuilt(&layer).expect_err("cut");
    }
    let write = |bytes: &[u8]| fs::write(&path, zstd::encode_all(bytes, 1).unwrap()).unwrap();
    for cut in 0..plain.len() {
        write(&plain[..cut]);
        is_damaged(&layer, "");
    }
    write(b"imagelet recipe 2\n");
    is_damaged(&layer, "unknown version");
    write(b"imagelet recipe 1\n?");
    is_damaged(&layer, "unknown record");
    write(b"imagelet recipe 1\ne\x05");
    is_damaged(&layer, "makes 0 bytes instead of 5");
    write(b"imagelet recipe 1\nr\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff");
    is_damaged(&layer, "number without end");
    write(b"imagelet recipe 1\nd\xff\xff\xff\xff\x7f");
    is_damaged(&layer, "path without end");
    for escape in [&b"../../outside/canary"[..], b"/etc/passwd", b"d/../d/f", b""] {
        let record =
            [&b"imagelet recipe 1\nd"[..], &[u8::try_from(escape.len()).unwrap()], escape, b"\0\x01e\x01"].concat();
        write(&record);
        is_damaged(&layer, "is gone");
    }
    fs::remove_file(&path).unwrap();
    symlink(layer.outside().join("canary"), &path).unwrap();
    assert!(matches!(rebuilt(&layer), Err(RecipeError::Read { .. })));
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_full_output_is_named() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let layer = unpacked();
    let error = rebuild(File::open(layer.path()).unwrap().as_fd(), &mut Full).unwrap_err();
    assert!(matches!(error, RecipeError::Write(_)));
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn moves_count_from_their_time_on() {
    let layer = Layer::new();
    let dir = File::open(layer.path()).unwrap();
    let mut writer = Writer::create(dir.as_fd()).unwrap();
    let put = |path: &str, text: &str| {
        let path = layer.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    // a/b three times: moved alone, moved with its directory, and still there.
    put("replaced/0", "one");
    put("replaced/1/b", "two");
    put("fs/a/b", "333");
    put("fs/a/bc", "4");
    for (number, path) in [(0, "a/b"), (1, "a")] {
        writer.data(b"a/b", 0, 3).unwrap();
        writer.raw(b"|").unwrap();
        writer.moved(path.as_bytes(), number).unwrap();
    }
    writer.data(b"a/b", 0, 3).unwrap();
    writer.data(b"a/bc", 0, 1).unwrap();
    writer.raw(&vec![b'r'; 300_000]).unwrap();
    writer.finish(12 - 2 + 2 + 300_000).unwrap();
    let out = rebuilt(&layer).unwrap();
    assert_eq!(&out[..12], b"one|two|3334");
    assert_eq!(out.len(), 300_012);
}
