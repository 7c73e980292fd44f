//! Which compression a blob has, told by its first bytes and never by its media type, and the decoders. Gzip may have
//! many members, zstd many frames (with windows up to 128 MiB); what else exists is refused by name. Called by the first
//! of a layer's two threads.

use std::io::{self, BufRead, Read};

/// How a blob is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    /// Not at all: a tar stream, or nothing.
    Plain,
    /// Gzip, one member or many.
    Gzip,
    /// Zstandard, one frame or many.
    Zstd,
}

/// A compression that exists and is not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("compressed with {0}, which image layers may not be: gzip, zstd and plain tar are supported")]
pub(crate) struct Unsupported(&'static str);

/// How many bytes [`detect`] wants to see.
pub(crate) const MAGIC: usize = 6;

/// Windows beyond this are refused: 2^27 bytes is what `zstd --long` makes at most by default.
const WINDOW_LOG_MAX: u32 = 27;

/// Tells the compression by the first bytes (fewer than [`MAGIC`] only where the blob is shorter).
pub(crate) fn detect(head: &[u8]) -> Result<Compression, Unsupported> {
    match head {
        [0x1f, 0x8b, 0x08, ..] => Ok(Compression::Gzip),
        // A frame, or a skippable frame before the first.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Ok(Compression::Zstd),
        [0xfd, b'7', b'z', b'X', b'Z', 0x00, ..] => Err(Unsupported("xz")),
        [b'B', b'Z', b'h', b'1'..=b'9', b'1', b'A', ..] => Err(Unsupported("bzip2")),
        [0x04, 0x22, 0x4d, 0x18, ..] => Err(Unsupported("lz4")),
        _ => Ok(Compression::Plain),
    }
}

/// A reader of what `source` holds in compressed form. It reads `source` to its end.
pub(crate) fn decoder<'a>(
    compression: Compression,
    source: impl BufRead + Send + 'a,
) -> io::Result<Box<dyn Read + Send + 'a>> {
    Ok(match compression {
        Compression::Plain => Box::new(source),
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(source)),
        Compression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(source)?;
            decoder.window_log_max(WINDOW_LOG_MAX)?;
            Box::new(decoder)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn inflate(blob: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        decoder(detect(blob).expect("supported"), blob)?.read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn told_by_magic() {
        let cases: [(&[u8], Result<Compression, Unsupported>); 8] = [
            (b"", Ok(Compression::Plain)),
            (b"./\0\0\0\0", Ok(Compression::Plain)),
            (&[0x1f, 0x8b, 8, 0, 0, 0], Ok(Compression::Gzip)),
            (&[0x28, 0xb5, 0x2f, 0xfd, 0, 0], Ok(Compression::Zstd)),
            (&[0x5a, 0x2a, 0x4d, 0x18, 0, 0], Ok(Compression::Zstd)),
            (&[0xfd, b'7', b'z', b'X', b'Z', 0], Err(Unsupported("xz"))),
            (b"BZh91AY&SY", Err(Unsupported("bzip2"))),
            (&[0x1f], Ok(Compression::Plain)),
        ];
        for (head, want) in cases {
            assert_eq!(detect(head), want, "{head:?}");
        }
    }

    #[test]
    fn many_members_and_frames() {
        let gz = [gzip(b"one "), gzip(b""), gzip(b"two")].concat();
        assert_eq!(inflate(&gz).unwrap(), b"one two");
        let frame = |data: &[u8]| zstd::stream::encode_all(data, 3).unwrap();
        let skippable = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
        let zst = [skippable.to_vec(), frame(b"one "), skippable.to_vec(), frame(b"two"), skippable.to_vec()].concat();
        assert_eq!(inflate(&zst).unwrap(), b"one two");
    }

    #[test]
    fn cut_off_and_corrupt_streams_fail() {
        let data: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        for whole in [gzip(&data), zstd::stream::encode_all(&data[..], 3).unwrap()] {
            assert_eq!(inflate(&whole).unwrap(), data);
            assert!(inflate(&whole[..whole.len() - 5]).is_err());
            assert!(inflate(&whole[..whole.len() / 2]).is_err());
            let mut bad = whole.clone();
            bad[whole.len() / 2] ^= 0x55;
            assert!(inflate(&bad).map_or(true, |got| got != data));
            assert!(inflate(&[&whole[..], b"trailing garbage"].concat()).is_err());
        }
    }
}
