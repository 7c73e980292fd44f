//! The public surface on real and hostile streams: chunks of every size, members and frames, damage.

use std::cell::RefCell;
use std::io::{self, Write as _};

use bytes::Bytes;

use super::*;

/// A blob in chunks of one size.
pub(crate) struct Chunks {
    blob: Bytes,
    size: usize,
}

impl Chunks {
    pub(crate) fn new(blob: &[u8], size: usize) -> Self {
        Self { blob: Bytes::copy_from_slice(blob), size }
    }
}

impl Source for Chunks {
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        if self.blob.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.blob.split_to(self.size.min(self.blob.len()))))
    }
}

/// Collects everything, in buffers of one size.
#[derive(Default)]
pub(crate) struct Gathered {
    pub(crate) bytes: Vec<u8>,
    pub(crate) buffer: usize,
}

impl Sink for Gathered {
    fn buffer(&mut self) -> Result<Vec<u8>, Stopped> {
        Ok(vec![0xee; self.buffer])
    }

    fn send(&mut self, full: Vec<u8>, len: usize) -> Result<(), Stopped> {
        self.bytes.extend_from_slice(&full[..len]);
        Ok(())
    }
}

pub(crate) fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn run_in(blob: &[u8], chunk: usize, buffer: usize, options: &Options<'_>) -> Result<Vec<u8>, Error> {
    let mut source = Chunks::new(blob, chunk);
    let mut sink = Gathered { buffer, ..Gathered::default() };
    run(&mut source, &mut sink, options, &mut |_| ()).map(|()| sink.bytes)
}

/// With chunks and buffers of several sizes: all the same.
fn inflate(blob: &[u8]) -> Result<Vec<u8>, Error> {
    let mut last = None;
    for (chunk, buffer) in [(1, 1000), (7, 70_000), (4096, BUFFER), (blob.len().max(1), 1)] {
        let now = run_in(blob, chunk, buffer, &Options::default());
        if let Some(before) = &last {
            match (before, &now) {
                (Ok(a), Ok(b)) => assert!(a == b, "chunks of {chunk}"),
                // Damage that is met sooner has another text.
                (Err(Error::Corrupt(..)), Err(Error::Corrupt(..))) => {}
                (a, b) => panic!("chunks of {chunk}: {:?} and {:?}", a.as_ref().err(), b.as_ref().err()),
            }
        }
        last = Some(now);
    }
    last.expect("one at least")
}

#[test]
fn many_members_and_frames() {
    let gz = [gzip(b"one "), gzip(b""), gzip(b"two")].concat();
    assert_eq!(inflate(&gz).unwrap(), b"one two");
    let frame = |data: &[u8]| zstd::stream::encode_all(data, 3).unwrap();
    let skippable = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
    // One that says that it has nothing, and one that does not say so.
    let nothing = [zstd::bulk::compress(b"", 3).unwrap(), frame(b"")].concat();
    let skippable = skippable.to_vec();
    let zst =
        [skippable.clone(), frame(b"one "), nothing.clone(), skippable.clone(), frame(b"two"), skippable].concat();
    assert_eq!(inflate(&zst).unwrap(), b"one two");
    assert_eq!(inflate(&nothing).unwrap(), b"");
    assert_eq!(inflate(b"plain text, no tar").unwrap(), b"plain text, no tar");
    assert_eq!(inflate(b"").unwrap(), b"");
}

#[test]
fn all_parts_of_a_header() {
    let mut header = flate2::GzBuilder::new()
        .filename("a name")
        .comment("a comment")
        .extra(vec![7; 300])
        .write(Vec::new(), flate2::Compression::fast());
    header.write_all(b"content").unwrap();
    let mut blob = header.finish().unwrap();
    assert_eq!(inflate(&blob).unwrap(), b"content");
    blob[3] |= 0x20;
    assert!(inflate(&blob).unwrap_err().to_string().contains("gzip"));
    blob[3] = (blob[3] & !0x20) | 2;
    // With a checksum of the header, which is wrong, and then right.
    let end = blob.len() - 8 - {
        let mut body = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        body.write_all(b"content").unwrap();
        body.finish().unwrap().len()
    };
    let mut crc = flate2::Crc::new();
    crc.update(&blob[..end]);
    let sum = u16::try_from(crc.sum() & 0xffff).unwrap().to_le_bytes();
    let with = |sum: [u8; 2]| [&blob[..end], &sum, &blob[end..]].concat();
    assert_eq!(inflate(&with(sum)).unwrap(), b"content");
    assert!(inflate(&with([sum[0] ^ 1, sum[1]])).is_err());
}

#[test]
fn nothing_else_may_follow() {
    for whole in [gzip(b"data"), zstd::stream::encode_all(&b"data"[..], 3).unwrap()] {
        for rest in [&b"trailing garbage"[..], &[0], &[0; 512], &[0x1f], &[0x1f, 0x8b, 8]] {
            assert!(inflate(&[&whole[..], rest].concat()).is_err(), "{rest:?}");
        }
    }
}

#[test]
fn cut_off_and_corrupt_streams_fail() {
    let data: Vec<u8> = (0..20_000_u32).flat_map(|n| (n * n).to_le_bytes()).collect();
    for whole in [gzip(&data), zstd::stream::encode_all(&data[..], 3).unwrap()] {
        assert_eq!(inflate(&whole).unwrap(), data);
        for cut in [1, 4, 5, 8, 9, whole.len() / 2, whole.len() - 7] {
            assert!(inflate(&whole[..whole.len() - cut]).is_err(), "{cut}");
        }
    }
    let whole = gzip(&data);
    for at in [whole.len() / 2, whole.len() - 1, whole.len() - 5] {
        let mut bad = whole.clone();
        bad[at] ^= 0x55;
        assert!(inflate(&bad).is_err(), "{at}");
    }
}

#[test]
fn large_windows_are_reserved_and_larger_ones_refused() {
    let data = vec![1; 40 << 20];
    let long = |log: u32| {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.set_parameter(zstd::stream::raw::CParameter::WindowLog(log)).unwrap();
        encoder.include_contentsize(false).unwrap();
        encoder.write_all(&data).unwrap();
        encoder.finish().unwrap()
    };
    let reserved = RefCell::new(Vec::new());
    let reserve = |bytes| {
        reserved.borrow_mut().push(bytes);
        Ok(Box::new(()) as MemoryShare)
    };
    let options = Options { reserve: &reserve, window_log_max: 25 };
    let asked = || reserved.take();
    let blob = [long(23), long(24), long(25), long(24)].concat();
    assert_eq!(run_in(&blob, 1 << 16, BUFFER, &options).unwrap().len(), 4 * data.len());
    assert_eq!(asked(), [1 << 24, 1 << 25]);
    assert!(matches!(run_in(&long(26), 1 << 16, BUFFER, &options), Err(Error::Corrupt("the zstd stream", _))));
    assert!(asked().is_empty());
}
