//! The compression of a blob, by its first bytes. Known but unsupported compressions are refused by name. Called by
//! [`super::run`], and by imports, which must declare it in a manifest.

/// Compression of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Uncompressed: a tar stream, or an empty blob.
    Plain,
    /// Gzip, one member or many.
    Gzip,
    /// Zstandard, one frame or many.
    Zstd,
}

/// A known compression that is not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("compressed with {0}, which image layers may not be: gzip, zstd and plain tar are supported")]
pub struct Unsupported(&'static str);

impl Unsupported {
    /// Name of the compression.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0
    }
}

/// Number of bytes that [`detect`] needs.
pub const MAGIC: usize = 6;

/// Detects the compression by a blob's first bytes, which are fewer than [`MAGIC`] only where the blob is shorter.
pub fn detect(head: &[u8]) -> Result<Compression, Unsupported> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detected_by_magic() {
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
}
