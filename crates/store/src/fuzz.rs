//! The rules that this crate's parsers keep for every input: run by libFuzzer (`fuzz/` at the top of the repository), and over the
//! committed corpora by a test. Compiled for tests and with the feature `fuzzing` only.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;

use crate::content::{left, spool};
use crate::disk::layer::Shape;
use crate::tar::{Entry, Kind, Limits, Reader};
use crate::unpack::{UnpackOptions, unpack_erofs};

/// A parser with what it has to keep, by its name.
pub type Harness = (&'static str, fn(&[u8]));

/// The harnesses by name. Each panics where a parser does not keep what it has to.
pub const HARNESSES: &[Harness] = &[
    ("tar", tar),
    ("tar-differential", tar_differential),
    ("layer", layer),
    ("left-layer", left_layer),
    ("left-blob", left_blob),
];

/// Small ones, so that a fuzzer meets them.
fn limits() -> Limits {
    Limits {
        layer_bytes: 4 << 20,
        entries: 1000,
        directories: 500,
        sparse_pieces: 200,
        pax_header_bytes: 64 << 10,
        pax_record_bytes: 16 << 10,
        long_name_bytes: 8 << 10,
        ..Limits::default()
    }
}

/// Puts the right sum into blocks that look like headers, which random input never has.
pub(crate) fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut sealed = bytes.to_vec();
    for block in sealed.chunks_exact_mut(512).filter(|block| &block[257..262] == b"ustar") {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    sealed
}

/// Every byte is handed on once, in order; nothing in an entry is beyond its limit or its size.
fn tar(bytes: &[u8]) {
    read(bytes);
    let sealed = sealed(bytes);
    if sealed != bytes {
        read(&sealed);
    }
}

/// A second implementation finds the same, or it is known why not.
fn tar_differential(bytes: &[u8]) {
    crate::tar::differential::compare(&sealed(bytes), &limits());
}

fn read(bytes: &[u8]) {
    let limits = limits();
    let mut source = bytes;
    let mut reader = Reader::new(&mut source, &limits);
    let (mut entry, mut handed, mut entries) = (Entry::default(), Vec::new(), 0_u64);
    loop {
        match reader.next(&mut entry, &mut |raw| {
            handed.extend_from_slice(raw);
            Ok(())
        }) {
            Ok(true) => entries += 1,
            Ok(false) => {
                assert!(handed == bytes, "every byte is handed on");
                return;
            }
            Err(error) => {
                assert!(error.to_string().len() < 4096, "{error}");
                break;
            }
        }
        check(&entry, entries, &limits);
        let mut data = 0;
        loop {
            match reader.data(1000) {
                Ok([]) => break,
                Ok(piece) => {
                    data += piece.len() as u64;
                    handed.extend_from_slice(piece);
                }
                Err(_) => return,
            }
        }
        let want = match &entry.pieces {
            Some(pieces) => pieces.iter().map(|piece| piece.len).sum(),
            None => entry.size,
        };
        assert!(entry.kind != Kind::File || data == want, "{data} bytes of data for {want}");
    }
    assert!(bytes.starts_with(&handed), "what was handed on is what came");
}

fn check(entry: &Entry, entries: u64, limits: &Limits) {
    assert!(entries <= limits.entries && entry.mode <= 0o7777 && entry.mtime.nanos < 1_000_000_000);
    assert!(entry.xattrs.len() <= limits.xattrs);
    let mut end = 0;
    for piece in entry.pieces.iter().flatten() {
        assert!(piece.offset >= end && piece.offset <= entry.size && piece.len <= entry.size - piece.offset);
        end = piece.offset + piece.len;
    }
}

/// An archive that unpacks makes an image that is whole, and its recipe makes the archive again.
fn layer(bytes: &[u8]) {
    let sealed = sealed(bytes);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let opened = File::open(directory.path()).expect("a directory opens");
    Shape::Erofs.begin(&opened.as_fd().try_clone_to_owned().expect("a descriptor")).expect("begins");
    let limits = limits();
    let options = UnpackOptions {
        limits: &limits,
        privileged: false,
        cancelled: &|| false,
        write_back: None,
        hollow: false,
        nested: false,
    };
    let outcome = match unpack_erofs(&mut &sealed[..], opened.as_fd(), &options) {
        Ok(outcome) => outcome,
        Err(error) => {
            assert!(error.to_string().len() < 8192, "{error}");
            return;
        }
    };
    let image = File::open(directory.path().join(crate::disk::layout::EROFS_FILE)).expect("there is an image");
    erofs::Reader::open(image).expect("opens").check().expect("is whole");
    if outcome.exact {
        let mut again = Vec::new();
        crate::recipe::rebuild(opened.as_fd(), &mut again).expect("is made again");
        assert!(again == sealed, "another archive is made again");
    }
}

/// The record of a leftover layer is parsed to the same value that is written.
fn left_layer(bytes: &[u8]) {
    let Ok(record) = left::parse_layer(bytes) else { return };
    let written = serde_json::to_vec(&record).expect("plain values become JSON");
    assert_eq!(left::parse_layer(&written).expect("is a record"), record);
}

thread_local! {
    static DATA: RefCell<File> = RefCell::new(tempfile::tempfile().expect("a temporary file"));
}

/// A leftover part of a blob, with its digests before the first zero byte and its data behind it: the bytes that are read back
/// are within the blob and as they were written, and each piece has the digest recorded for it.
fn left_blob(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (sums, data) = (&bytes[..end], bytes.get(end + 1..).unwrap_or_default());
    DATA.with_borrow_mut(|file| {
        file.set_len(0).expect("cuts");
        let Ok((head, mut back)) = spool::SpoolReader::begin(sums) else { return };
        assert!(head.begin < head.size && (!head.whole || head.begin == 0));
        // The data begins where the blob does, so that the bytes before it take no space.
        if head.begin > 1 << 20 {
            return;
        }
        file.write_all_at(data, head.begin).expect("writes");
        let text = String::from_utf8_lossy(sums);
        let mut lines = text.lines().skip(1);
        let mut at = head.begin;
        while let Ok(Some(piece)) = back.piece(file, at, head.size) {
            let from = usize::try_from(at - head.begin).expect("within the input");
            assert!(!piece.is_empty() && data[from..].starts_with(&piece));
            if !head.whole {
                let line = lines.next().expect("a line for each piece");
                assert!(line.ends_with(oci::Digest::sha256(&piece).hex()), "{line}");
            }
            at += piece.len() as u64;
            assert!(at <= head.size);
        }
    });
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
#[test]
fn corpora_are_replayed() {
    replay::replay(HARNESSES);
}
