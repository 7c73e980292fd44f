//! The file of digests beside a spool: its first line, which says of which blob the spool is, and the reading of lines.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use oci::Digest;
use serde::{Deserialize, Serialize};

use crate::content::left::{LeftKind, LeftWork, SPOOL, beside_name, written};

/// No line is longer.
const LINE: u64 = 1 << 10;

/// The first line of the file of digests. Each line after it is the length of a piece and its digest.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SpoolHead {
    pub(crate) blob: Digest,
    pub(crate) size: u64,
    /// The first byte of the blob that is here.
    pub(crate) begin: u64,
    /// All of it is here, and was found to be the right one: no line follows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) whole: bool,
    /// Where the blob comes from, in the words of the image service. Files of earlier versions do not say.
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

/// A line without its end; none at the end of the file, whatever stands there without an end of line.
pub(crate) fn line(lines: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    lines.by_ref().take(LINE).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Ok(None);
    }
    String::from_utf8(line).map(Some).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

/// The first line, and where it ends.
pub(crate) fn head(lines: &mut impl BufRead) -> io::Result<(SpoolHead, u64)> {
    let line = line(lines)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let head: SpoolHead = serde_json::from_str(&line)?;
    if head.begin >= head.size || (head.whole && head.begin > 0) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok((head, line.len() as u64 + 1))
}

/// Looks what a file under `ingest/` is the spool of.
pub(crate) fn find(directory: &Path, number: u64) -> io::Result<LeftWork> {
    let sums = File::open(directory.join(beside_name(number, SPOOL)))?;
    let (about, at) = (sums.metadata()?, written(&sums.metadata()?));
    let (SpoolHead { blob, size, whole, origin, .. }, _) = head(&mut BufReader::new(sums))?;
    let data = std::fs::symlink_metadata(directory.join(number.to_string()))?;
    // One with another name has become a part of an image.
    if !data.is_file() || (whole && (data.len() != size || data.nlink() > 1)) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let bytes = (data.blocks() + about.blocks()) * 512;
    Ok(LeftWork { what: LeftKind::Spool { blob, size, origin }, bytes, inodes: 2, at })
}
