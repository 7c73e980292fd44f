//! Leftovers of interrupted pulls under `ingest/`, as the small file next to each describes them. Plain values and their parsing;
//! nothing is trusted before it was verified.

use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use oci::Digest;
use serde::{Deserialize, Serialize};

use crate::disk::layer::Shape;
use crate::records::entries::LayerStats;

/// Suffix of the file next to a layer. The name of such a file, and of the one next to a spool, is the number, a dot, and the
/// suffix.
pub(crate) const LAYER: &str = "layer";

pub(crate) const SPOOL: &str = "sums";

/// Suffix of such a file while it is being written.
pub(crate) const NEW: &str = "new";

/// Returns the name of the file that describes a leftover.
pub(crate) fn note_name(number: u64, suffix: &str) -> String {
    format!("{number}.{suffix}")
}

/// A leftover of an interrupted pull.
#[derive(Clone, Debug)]
pub(crate) struct LeftWork {
    pub(crate) what: LeftKind,
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
    /// When, in nanoseconds since 1970, as the file system says.
    pub(crate) at: i64,
}

#[derive(Clone, Debug)]
pub(crate) enum LeftKind {
    Layer(LayerNote),
    Spool { blob: Digest, size: u64, origin: String },
}

impl LeftKind {
    pub(crate) fn note_suffix(&self) -> &'static str {
        match self {
            Self::Layer(_) => LAYER,
            Self::Spool { .. } => SPOOL,
        }
    }
}

/// When a file was last written, in nanoseconds since 1970.
pub(crate) fn written(file: &Metadata) -> i64 {
    file.mtime().saturating_mul(1_000_000_000).saturating_add(file.mtime_nsec())
}

/// A record has no more bytes.
const MOST_BYTES: u64 = 16 << 10;

/// The record of a whole layer, in the file next to its directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerNote {
    pub(crate) blob: Digest,
    pub(crate) size: u64,
    pub(crate) diff_id: Digest,
    pub(crate) shape: Shape,
    pub(crate) stats: LayerStats,
    /// Of the directory: it is the same wherever a commit has moved it.
    #[serde(default)]
    pub(crate) inode: u64,
    /// Where the blob was fetched from, in the words of the image service. Records of earlier versions do not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) origin: String,
}

pub(crate) fn parse_layer(bytes: &[u8]) -> io::Result<LayerNote> {
    Ok(serde_json::from_slice(bytes)?)
}

/// Reads the record of a directory under `ingest/`.
pub(crate) fn find_layer(directory: &Path, number: u64) -> io::Result<LeftWork> {
    let file = File::open(directory.join(note_name(number, LAYER)))?;
    let at = written(&file.metadata()?);
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    let record = parse_layer(&bytes)?;
    let (bytes, inodes) = (record.stats.disk_bytes, record.stats.inodes.saturating_add(1));
    Ok(LeftWork { what: LeftKind::Layer(record), bytes, inodes, at })
}

/// No line is longer.
const LINE: u64 = 1 << 10;

/// The first line of the file of digests. Each line after it is the length of a piece and its digest.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SpoolHead {
    pub(crate) blob: Digest,
    pub(crate) size: u64,
    /// The first byte of the blob that was fetched.
    pub(crate) begin: u64,
    /// All of the blob is present and was verified: no line follows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) whole: bool,
    /// Where the blob was fetched from, in the words of the image service. Files of earlier versions do not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) origin: String,
}

impl SpoolHead {
    pub(crate) fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("plain values become JSON");
        line.push(b'\n');
        line
    }
}

/// Returns the next complete line; `None` at the end of the file, even if an incomplete line is left.
pub(crate) fn line(lines: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    lines.by_ref().take(LINE).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Ok(None);
    }
    String::from_utf8(line).map(Some).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

/// The first line, and where it ends.
pub(crate) fn spool_head(lines: &mut impl BufRead) -> io::Result<(SpoolHead, u64)> {
    let line = line(lines)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let head: SpoolHead = serde_json::from_str(&line)?;
    if head.begin >= head.size || (head.whole && head.begin > 0) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok((head, line.len() as u64 + 1))
}

/// Finds out of which blob a file under `ingest/` is the spool.
pub(crate) fn find_spool(directory: &Path, number: u64) -> io::Result<LeftWork> {
    let sums = File::open(directory.join(note_name(number, SPOOL)))?;
    let (about, at) = (sums.metadata()?, written(&sums.metadata()?));
    let (SpoolHead { blob, size, whole, origin, .. }, _) = spool_head(&mut BufReader::new(sums))?;
    let data = std::fs::symlink_metadata(directory.join(number.to_string()))?;
    // One with another name has become a part of an image.
    if !data.is_file() || (whole && (data.len() != size || data.nlink() > 1)) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let bytes = (data.blocks() + about.blocks()) * 512;
    Ok(LeftWork { what: LeftKind::Spool { blob, size, origin }, bytes, inodes: 2, at })
}
