//! Start of the last lines of a log. Reads backwards from the end, and no more than necessary; only a compressed file
//! is read from its beginning, because it cannot be read otherwise. Lines are those of the container: a line that the
//! runtime wrote in parts counts once, also where a rotation happened between the parts.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::FileExt as _;

use flate2::read::MultiGzDecoder;

use super::line::LogLine;

/// Number of bytes that are read at once.
const CHUNK: usize = 64 << 10;
/// Number of bytes of a line that are enough to classify it.
const HEAD: usize = 64;

/// Counts lines from the last one on.
#[derive(Debug)]
struct LineCount {
    lines: u64,
    /// A newer file may begin with the rest of a line that is the last one here, and has counted it.
    continued: bool,
}

impl LineCount {
    /// Takes the line before in, which may begin one more line of the container's. A line of another format is not counted.
    fn add(&mut self, head: &[u8]) {
        let Some(line) = LogLine::parse(head) else { return };
        if !line.partial || (self.lines == 0 && !self.continued) {
            self.lines += 1;
        }
    }
}

/// Returns the start of the last `wanted` lines of the first `end` bytes, and their number. `continued` is true if the lines of
/// a newer file begin with its first byte, so that the last line of this file may continue there.
pub(super) fn start(file: &File, end: u64, wanted: u64, continued: bool) -> io::Result<(u64, u64)> {
    if end == 0 || (wanted == 0 && !continued) {
        return Ok((end, 0));
    }
    let mut count = LineCount { lines: 0, continued };
    // The first byte of the line that was counted last.
    let mut begin = end;
    let mut chunk = vec![0; CHUNK];
    let mut at = end;
    // What ends the last line begins no other.
    let mut last = end;
    let mut one = [0];
    file.read_exact_at(&mut one, end - 1)?;
    if one == [b'\n'] {
        last = end - 1;
    }
    while at > 0 {
        let length = u64::try_from(CHUNK).unwrap_or(u64::MAX).min(at);
        at -= length;
        let chunk = &mut chunk[..usize::try_from(length).unwrap_or(CHUNK)];
        file.read_exact_at(chunk, at)?;
        for (index, _) in chunk.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let newline = at + u64::try_from(index).unwrap_or_default();
            if newline >= last {
                continue;
            }
            if !take(file, newline + 1, end, wanted, &mut count)? {
                return Ok((begin, wanted));
            }
            begin = newline + 1;
        }
    }
    if take(file, 0, end, wanted, &mut count)? { Ok((0, count.lines)) } else { Ok((begin, wanted)) }
}

/// Counts the line at `from`; `false`: it would be one too many.
fn take(file: &File, from: u64, end: u64, wanted: u64, count: &mut LineCount) -> io::Result<bool> {
    let mut head = [0; HEAD];
    let length = usize::try_from(end - from).unwrap_or(HEAD).min(HEAD);
    file.read_exact_at(&mut head[..length], from)?;
    let head = &head[..length];
    let line = head.split(|b| *b == b'\n').next().unwrap_or(head);
    count.add(line);
    Ok(count.lines <= wanted)
}

/// Returns the number of complete lines of a compressed file, and whether an incomplete one follows.
pub(super) fn count_compressed(file: File) -> io::Result<(u64, bool)> {
    let mut read = BufReader::with_capacity(CHUNK, MultiGzDecoder::new(file));
    let (mut lines, mut head, mut open) = (0, Vec::with_capacity(HEAD), false);
    loop {
        let bytes = read.fill_buf()?;
        if bytes.is_empty() {
            return Ok((lines, open || LogLine::parse(&head).is_some()));
        }
        let (part, ended) = match bytes.iter().position(|b| *b == b'\n') {
            Some(end) => (&bytes[..end], true),
            None => (bytes, false),
        };
        head.extend_from_slice(&part[..part.len().min(HEAD - head.len().min(HEAD))]);
        let used = part.len() + usize::from(ended);
        if ended {
            if let Some(line) = LogLine::parse(&head) {
                lines += u64::from(!line.partial);
                open = line.partial;
            }
            head.clear();
        }
        read.consume(used);
    }
}
