//! The files of a view as a tar stream: [`View::archive`]. POSIX headers, with extended ones where a name, a number, a time or an
//! attribute does not fit. Owners, modes and devices are those of the image, whichever user writes it. Holes become zeros. The
//! stream is written without seeking; only the positions of files with several names are remembered.

use std::collections::HashMap;
use std::io::{self, Write};

use super::attributes::Kind;
use super::copy::{Copied, Lacks};
use super::error::ViewError;
use super::path::join;
use super::{Node, View};

const BLOCK: usize = 512;
const BUFFER: usize = 256 << 10;
/// The most that the fields of a header hold.
const NAME_MOST: usize = 100;
const ID_MOST: u64 = 0o7_777_777;
const SIZE_MOST: u64 = 0o77_777_777_777;

impl View {
    /// Writes something and all below it, under `name`.
    ///
    /// # Errors
    /// The view cannot be read, [`ViewError::Write`] or [`ViewError::Cancelled`].
    pub fn archive(
        &self,
        node: &Node,
        name: &[u8],
        out: &mut dyn Write,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Copied, ViewError> {
        let (copied, names, buffer) = (Copied::default(), HashMap::new(), vec![0; BUFFER]);
        let mut archiver = Archiver { view: self, out, cancelled, copied, names, buffer };
        // The deepest on top: what is in a directory follows it.
        let mut todo = vec![(node.clone(), name.to_vec())];
        while let Some((node, path)) = todo.pop() {
            if (archiver.cancelled)() {
                return Err(ViewError::Cancelled);
            }
            archiver.entry(&node, &path)?;
            if node.stat.kind == Kind::Directory {
                let entries = self.entries(&node)?.into_iter().rev();
                todo.extend(entries.map(|entry| {
                    let path = join(&path, entry.name());
                    (entry, path)
                }));
            }
        }
        archiver.write(&[0; 2 * BLOCK])?;
        archiver.out.flush().map_err(failed)?;
        Ok(archiver.copied)
    }
}

struct Archiver<'a> {
    view: &'a View,
    out: &'a mut dyn Write,
    cancelled: &'a dyn Fn() -> bool,
    copied: Copied,
    /// Where things with several names stand.
    names: HashMap<(usize, u64), Vec<u8>>,
    buffer: Vec<u8>,
}

fn failed(source: io::Error) -> ViewError {
    ViewError::Write { operation: "write", path: "the archive".into(), source }
}

impl Archiver<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), ViewError> {
        self.out.write_all(bytes).map_err(failed)
    }

    fn entry(&mut self, node: &Node, path: &[u8]) -> Result<(), ViewError> {
        let kind = node.stat.kind;
        let Copied { lacks: Lacks { sockets, whiteouts, .. }, .. } = &mut self.copied;
        match kind {
            // Tar knows no sockets, and a whiteout is nothing without what it hides.
            Kind::Socket => *sockets += 1,
            Kind::Whiteout => *whiteouts += 1,
            _ => {
                let known = node.identity().filter(|_| kind != Kind::Directory && node.stat.links > 1);
                if let Some(first) = known.and_then(|identity| self.names.get(&identity)).cloned() {
                    self.copied.others += 1;
                    return self.header(node, path, b'1', &first, 0);
                }
                if let Some(identity) = known {
                    self.names.insert(identity, path.to_vec());
                }
                return self.first(node, path);
            }
        }
        Ok(())
    }

    /// Something that was not written under another name.
    fn first(&mut self, node: &Node, path: &[u8]) -> Result<(), ViewError> {
        let flag = match node.stat.kind {
            Kind::File => return self.file(node, path),
            Kind::Directory => {
                self.copied.directories += 1;
                return self.header(node, &[path, b"/"].concat(), b'5', b"", 0);
            }
            Kind::Symlink => {
                let target = self.view.target(node)?;
                self.copied.others += 1;
                return self.header(node, path, b'2', &target, 0);
            }
            Kind::Char => b'3',
            Kind::Block => b'4',
            _ => b'6',
        };
        self.copied.others += 1;
        self.header(node, path, flag, b"", 0)
    }

    fn file(&mut self, node: &Node, path: &[u8]) -> Result<(), ViewError> {
        let content = self.view.file(node)?;
        let size = node.stat.size;
        self.header(node, path, b'0', b"", size)?;
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut at = 0;
        while at < size {
            if (self.cancelled)() {
                return Err(ViewError::Cancelled);
            }
            let most = usize::try_from(size - at).unwrap_or(usize::MAX).min(buffer.len());
            let length = content.read_at(at, &mut buffer[..most])?;
            if length == 0 {
                let error = io::Error::new(io::ErrorKind::UnexpectedEof, "the file is not as long as it says");
                return Err(self.view.failed(node.parts[0].layer, &node.path, error));
            }
            self.write(&buffer[..length])?;
            at += length as u64;
        }
        self.buffer = buffer;
        self.pad(size)?;
        self.copied.files += 1;
        self.copied.bytes += size;
        Ok(())
    }

    fn pad(&mut self, size: u64) -> Result<(), ViewError> {
        let over = usize::try_from(size % BLOCK as u64).expect("less than a block");
        if over == 0 { Ok(()) } else { self.write(&[0; BLOCK][over..]) }
    }

    /// The header of an entry, with an extended one before it where that is needed.
    fn header(&mut self, node: &Node, path: &[u8], flag: u8, link: &[u8], size: u64) -> Result<(), ViewError> {
        let stat = &node.stat;
        let mut more = Vec::new();
        if path.len() > NAME_MOST {
            record(&mut more, b"path", path);
        }
        if link.len() > NAME_MOST {
            record(&mut more, b"linkpath", link);
        }
        for (key, id) in [(&b"uid"[..], stat.uid), (b"gid", stat.gid)] {
            if u64::from(id) > ID_MOST {
                record(&mut more, key, id.to_string().as_bytes());
            }
        }
        if size > SIZE_MOST {
            record(&mut more, b"size", size.to_string().as_bytes());
        }
        let (seconds, nanos) = stat.mtime;
        let plain = u64::try_from(seconds).ok().filter(|seconds| nanos == 0 && *seconds <= SIZE_MOST);
        if plain.is_none() {
            record(&mut more, b"mtime", time(seconds, nanos).as_bytes());
        }
        if flag != b'1' {
            for (name, value) in self.view.xattrs(node)? {
                record(&mut more, &[b"SCHILY.xattr.", name.as_slice()].concat(), &value);
            }
        }
        if !more.is_empty() {
            let length = more.len() as u64;
            self.write(&block(b"extended", b'x', b"", length, &HeaderFields::default()))?;
            self.write(&more)?;
            self.pad(length)?;
        }
        let fields = HeaderFields {
            mode: stat.mode,
            uid: u64::from(stat.uid).min(ID_MOST),
            gid: u64::from(stat.gid).min(ID_MOST),
            seconds: plain.unwrap_or(0),
            device: stat.device,
        };
        self.write(&block(path, flag, link, size.min(SIZE_MOST), &fields))
    }
}

/// Seconds with a fraction, as extended headers have them; also before 1970.
fn time(seconds: i64, nanos: u32) -> String {
    let total = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    let (sign, total) = if total < 0 { ("-", -total) } else { ("", total) };
    format!("{sign}{}.{:09}", total / 1_000_000_000, total % 1_000_000_000)
}

/// A record says its own length.
fn record(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    records.extend_from_slice(format!("{length} ").as_bytes());
    records.extend_from_slice(key);
    records.push(b'=');
    records.extend_from_slice(value);
    records.push(b'\n');
}

#[derive(Default)]
struct HeaderFields {
    mode: u32,
    uid: u64,
    gid: u64,
    seconds: u64,
    device: (u32, u32),
}

fn block(path: &[u8], flag: u8, link: &[u8], size: u64, fields: &HeaderFields) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut text = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    text(0, &path[..path.len().min(NAME_MOST)]);
    text(100, format!("{:07o}", fields.mode & 0o7777).as_bytes());
    text(108, format!("{:07o}", fields.uid).as_bytes());
    text(116, format!("{:07o}", fields.gid).as_bytes());
    text(124, format!("{size:011o}").as_bytes());
    text(136, format!("{:011o}", fields.seconds).as_bytes());
    text(156, &[flag]);
    text(157, &link[..link.len().min(NAME_MOST)]);
    text(257, b"ustar\x0000");
    if matches!(flag, b'3' | b'4') {
        text(329, format!("{:07o}", fields.device.0).as_bytes());
        text(337, format!("{:07o}", fields.device.1).as_bytes());
    }
    text(148, b"        ");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_say_their_length_and_times_their_sign() {
        for length in [1, 90, 91, 92, 93, 94, 95, 990, 991, 992, 9990] {
            let mut bytes = Vec::new();
            record(&mut bytes, b"path", &vec![b'x'; length]);
            let said: usize =
                String::from_utf8_lossy(&bytes).split(' ').next().expect("a number").parse().expect("one");
            assert_eq!(said, bytes.len());
        }
        assert_eq!(time(1, 5), "1.000000005");
        assert_eq!(time(-2, 0), "-2.000000000");
        assert_eq!(time(-2, 500_000_000), "-1.500000000");
    }
}
