//! The input's results for every compression, for pipes, and for what is too much.

use std::io::Read as _;

use lzma_rust2::{CheckType, XzOptions, XzWriter};

use super::*;

fn opened(path: &Path, limits: &Limits, cancelled: &dyn Fn() -> bool) -> Result<Vec<u8>> {
    let spool = || Ok(tempfile::tempfile().expect("a file"));
    match open(path, &Copying { spool: &spool, limits, cancelled })? {
        Opened::Directory(_) => panic!("a directory"),
        Opened::File(mut file) => {
            io::Seek::rewind(&mut file).expect("rewinds");
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).expect("reads");
            Ok(bytes)
        }
    }
}

fn content() -> Vec<u8> {
    (0..500_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("writes");
    encoder.finish().expect("ends")
}

fn xz_with(bytes: &[u8], check: CheckType, block: Option<u64>) -> Vec<u8> {
    let mut options = XzOptions::with_preset(0);
    options.set_check_sum_type(check);
    options.set_block_size(block.and_then(std::num::NonZeroU64::new));
    let mut encoder = XzWriter::new(Vec::new(), options).expect("begins");
    encoder.write_all(bytes).expect("writes");
    encoder.finish().expect("ends")
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    xz_with(bytes, CheckType::Crc64, None)
}

/// A stream whose block asks for a dictionary of this size, as the format numbers them.
fn xz_of_dictionary(size: u8) -> Vec<u8> {
    let mut bytes = xz(b"content");
    // Behind the 12 bytes of the stream's header: length, flags, filter, length of its properties, size of the dictionary.
    assert_eq!(bytes[14..16], [0x21, 1]);
    bytes[16] = size;
    let end = 12 + 4 * usize::from(bytes[12]);
    let mut crc = flate2::Crc::new();
    crc.update(&bytes[12..end]);
    bytes[end..end + 4].copy_from_slice(&crc.sum().to_le_bytes());
    bytes
}

#[test]
fn archives_are_read_whatever_their_compression() {
    let directory = tempfile::tempdir().expect("a directory");
    let content = content();
    let two = |encode: &dyn Fn(&[u8]) -> Vec<u8>| [encode(&content[..1000]), encode(&content[1000..])].concat();
    for (name, bytes) in [
        ("plain", content.clone()),
        ("gzip", gzip(&content)),
        ("two members of gzip", two(&gzip)),
        ("zstd", zstd::encode_all(&content[..], 1).expect("encodes")),
        ("xz", xz(&content)),
        ("xz without a check", xz_with(&content, CheckType::None, None)),
        ("xz with sha256, in blocks", xz_with(&content, CheckType::Sha256, Some(100_000))),
        ("two streams of xz", two(&xz)),
    ] {
        let path = directory.path().join(name);
        std::fs::write(&path, &bytes).expect("writes");
        assert!(opened(&path, &Limits::default(), &|| false).expect(name) == content, "{name}");
        // The same out of a pipe.
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let feed = std::thread::spawn(move || writer.write_all(&bytes));
        let number = std::os::fd::AsRawFd::as_raw_fd(&reader);
        let piped = opened(Path::new(&format!("/dev/fd/{number}")), &Limits::default(), &|| false);
        assert!(piped.expect(name) == content, "{name}");
        feed.join().expect("no panic").expect("writes");
    }
}

#[test]
fn sockets_are_read_and_silence_can_be_given_up() {
    for directory in ["/dev/fd".to_owned(), format!("/proc/{}/fd", std::process::id())] {
        let (near, mut far) = std::os::unix::net::UnixStream::pair().expect("a socket");
        let number = std::os::fd::AsRawFd::as_raw_fd(&near);
        far.write_all(b"something").expect("writes");
        drop(far);
        let path = format!("{directory}/{number}");
        assert_eq!(opened(Path::new(&path), &Limits::default(), &|| false).expect("reads"), b"something", "{path}");
    }
    let (reader, _writer) = io::pipe().expect("a pipe");
    let number = std::os::fd::AsRawFd::as_raw_fd(&reader);
    let looks = Cell::new(0);
    let cancelled = || looks.replace(looks.get() + 1) > 0;
    let error = opened(Path::new(&format!("/dev/fd/{number}")), &Limits::default(), &cancelled).expect_err("silent");
    assert_eq!(error.kind(), Kind::Cancelled);
}

#[test]
fn a_pipe_without_an_end_is_refused_at_the_limit() {
    let limits = Limits { image_bytes: 1 << 20, ..Limits::default() };
    let error = opened(Path::new("/dev/zero"), &limits, &|| false).expect_err("too much");
    assert_eq!(error.message(), "the limit of bytes of an archive is 1048576, and there are more");
}

#[test]
fn a_dictionary_of_the_largest_preset_is_accepted() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("x");
    std::fs::write(&path, xz_of_dictionary(28)).expect("writes");
    assert_eq!(opened(&path, &Limits::default(), &|| false).expect("reads"), b"content");
}

#[test]
fn damage_bombs_and_other_compressions_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let content = content();
    let (xz, gzip) = (xz(&content), gzip(&content));
    let mut flipped = xz.clone();
    flipped[xz.len() / 2] ^= 0x10;
    let small = Limits { inflate_free: 1 << 20, inflate_ratio: 2, ..Limits::default() };
    let all = Limits::default();
    for (name, bytes, limits, kind, word) in [
        ("cut xz", xz[..xz.len() - 30].to_vec(), &all, Kind::DataLoss, "inflate the xz stream"),
        ("flipped xz", flipped, &all, Kind::DataLoss, "inflate the xz stream"),
        ("cut gzip", gzip[..gzip.len() - 30].to_vec(), &all, Kind::DataLoss, "inflate the gzip stream"),
        ("garbage behind gzip", [&gzip[..], b"x"].concat(), &all, Kind::DataLoss, "inflate the gzip stream"),
        ("a bomb of xz", xz.clone(), &small, Kind::InvalidArgument, "the limit of bytes of an archive"),
        ("a bomb of gzip", gzip.clone(), &small, Kind::InvalidArgument, "the limit of bytes of an archive"),
        ("bzip2", b"BZh91AY&SY".to_vec(), &all, Kind::InvalidArgument, "it is compressed with bzip2"),
        ("a large dictionary", xz_of_dictionary(30), &all, Kind::InvalidArgument, "a dictionary of more than 64 MiB"),
    ] {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).expect("writes");
        let error = opened(&path, limits, &|| false).expect_err(name);
        assert_eq!(error.kind(), kind, "{name}: {error}");
        assert!(error.message().contains(word), "{name}: {error}");
    }
}
