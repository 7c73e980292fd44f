//! Tar files as containers of blobs: where each member lies ([`index`]), and a writer that learns sizes and digests only
//! after the bytes ([`TarWriter`]). It does not unpack anything: layers are the store's. Used by imports and exports.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::os::unix::fs::FileExt as _;

const BLOCK: u64 = 512;
const BLOCK_LEN: usize = 512;
/// More members than this are refused.
const MAX_MEMBERS: usize = 1 << 20;
/// Longer long names and pax headers are refused.
const MAX_META: u64 = 1 << 20;

/// A member of a tar file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Member {
    /// A file: where its bytes begin, and how many there are.
    File { offset: u64, size: u64 },
    /// A link to another member, by its normal name.
    Link(String),
}

fn bad(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// All files and links by their normal names (no `./` in front). Of members with the same name the last one counts.
pub(crate) fn index(file: &File) -> io::Result<HashMap<String, Member>> {
    let length = file.metadata()?.len();
    let mut members = HashMap::new();
    let mut at = 0_u64;
    let (mut long_name, mut long_link, mut pax) = (None, None, PaxFields::default());
    while at + BLOCK <= length {
        let mut header = [0_u8; BLOCK_LEN];
        file.read_exact_at(&mut header, at)?;
        if header.iter().all(|b| *b == 0) {
            break;
        }
        if at == 0 && !header_sum_fits(&header) {
            return Err(bad("it is no tar file"));
        }
        if !header_sum_fits(&header) {
            return Err(bad(format!("not a tar header at byte {at}")));
        }
        let kind = header[156];
        let is_meta = matches!(kind, b'L' | b'K' | b'x' | b'g');
        let own_size = number(&header[124..136])?;
        let size = if is_meta { own_size } else { pax.size.unwrap_or(own_size) };
        let offset = at + BLOCK;
        let end = offset.checked_add(size).filter(|end| *end <= length);
        let end = end.ok_or_else(|| bad(format!("the archive ends inside the member at byte {at}")))?;
        at = end.div_ceil(BLOCK) * BLOCK;
        if is_meta {
            if size > MAX_META {
                return Err(bad(format!("a header of {size} bytes")));
            }
            let mut data = vec![0; usize::try_from(size).map_err(|_| bad("a header that is too large"))?];
            file.read_exact_at(&mut data, offset)?;
            match kind {
                b'L' => long_name = Some(text(&data)),
                b'K' => long_link = Some(text(&data)),
                b'x' => pax = PaxFields::parse(&data)?,
                _ => {}
            }
            continue;
        }
        let pax = std::mem::take(&mut pax);
        let name = pax.path.or(long_name.take()).unwrap_or_else(|| header_name(&header));
        let link = pax.link.or(long_link.take()).unwrap_or_else(|| text(&header[157..257]));
        let Some(name) = normal(&name) else { continue };
        let member = match kind {
            0 | b'0' | b'7' => Member::File { offset, size },
            // Hard links name members, symbolic ones are relative to their directory.
            b'1' => match normal(&link) {
                Some(target) => Member::Link(target),
                None => continue,
            },
            b'2' => match link_target(&name, &link) {
                Some(target) => Member::Link(target),
                None => continue,
            },
            _ => continue,
        };
        if members.len() >= MAX_MEMBERS {
            return Err(bad(format!("more than {MAX_MEMBERS} members")));
        }
        members.insert(name, member);
    }
    Ok(members)
}

#[derive(Default)]
struct PaxFields {
    path: Option<String>,
    link: Option<String>,
    size: Option<u64>,
}

impl PaxFields {
    fn parse(mut data: &[u8]) -> io::Result<Self> {
        let mut pax = Self::default();
        while !data.is_empty() {
            let malformed = || bad("a malformed pax header");
            let space = data.iter().position(|b| *b == b' ').ok_or_else(malformed)?;
            let length: usize =
                std::str::from_utf8(&data[..space]).ok().and_then(|t| t.parse().ok()).ok_or_else(malformed)?;
            let record = data.get(space + 1..length).and_then(|r| r.strip_suffix(b"\n")).ok_or_else(malformed)?;
            let equals = record.iter().position(|b| *b == b'=').ok_or_else(malformed)?;
            let (key, value) = (&record[..equals], text(&record[equals + 1..]));
            match key {
                b"path" => pax.path = Some(value),
                b"linkpath" => pax.link = Some(value),
                b"size" => pax.size = Some(value.parse().map_err(|_| malformed())?),
                _ => {}
            }
            data = &data[length..];
        }
        Ok(pax)
    }
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn header_name(header: &[u8]) -> String {
    let name = text(&header[..100]);
    let prefix = if &header[257..263] == b"ustar\0" { text(&header[345..500]) } else { String::new() };
    if prefix.is_empty() { name } else { format!("{prefix}/{name}") }
}

/// Octal, or the binary form that GNU uses for large values.
fn number(field: &[u8]) -> io::Result<u64> {
    if field[0] & 0x80 != 0 {
        let mut value = u64::from(field[0] & 0x7f);
        for byte in &field[1..] {
            value = value.checked_mul(256).ok_or_else(|| bad("a size that is too large"))? | u64::from(*byte);
        }
        return Ok(value);
    }
    let text = text(field);
    let text = text.trim_matches(' ');
    if text.is_empty() { Ok(0) } else { u64::from_str_radix(text, 8).map_err(|_| bad("a size that is no number")) }
}

fn header_sum(header: &[u8]) -> u64 {
    header.iter().enumerate().map(|(i, b)| if (148..156).contains(&i) { 32 } else { u64::from(*b) }).sum()
}

fn header_sum_fits(header: &[u8]) -> bool {
    number(&header[148..156]).is_ok_and(|sum| sum == header_sum(header))
}

/// A name without `./`, empty and `..` parts; `None` when it leads out of the archive or to its root.
pub(crate) fn normal(name: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

fn link_target(name: &str, link: &str) -> Option<String> {
    match name.rsplit_once('/') {
        Some((directory, _)) => normal(&format!("{directory}/{link}")),
        None => normal(link),
    }
}

/// Writes a tar file whose members' sizes become known only at their ends.
pub(crate) struct TarWriter {
    file: io::BufWriter<File>,
    at: u64,
    /// Where nothing can be gone back in, and each member goes when it is whole; the file has one of them at a time.
    stream: Option<File>,
}

impl TarWriter {
    /// Onto an empty file.
    pub(crate) fn new(file: File) -> Self {
        Self { file: io::BufWriter::with_capacity(256 * 1024, file), at: 0, stream: None }
    }

    /// Into what is written once, from beginning to end, through an empty file.
    pub(crate) fn through(file: File, stream: File) -> Self {
        Self { stream: Some(stream), ..Self::new(file) }
    }

    /// Begins a member; its bytes go through [`Write`].
    pub(crate) fn begin(&mut self) -> io::Result<u64> {
        let start = self.at;
        self.write_all(&[0; BLOCK_LEN])?;
        Ok(start)
    }

    /// Ends the member that began at `start`, and gives it its name. `name` has at most 100 bytes.
    pub(crate) fn end(&mut self, start: u64, name: &str) -> io::Result<()> {
        let size = self.at - start - BLOCK;
        let header = header(name, size)?;
        let padding = usize::try_from(self.at.div_ceil(BLOCK) * BLOCK - self.at).expect("less than a block");
        self.write_all(&[0; BLOCK_LEN][..padding])?;
        self.file.seek(SeekFrom::Start(start))?;
        self.file.write_all(&header)?;
        self.file.seek(SeekFrom::Start(self.at))?;
        self.send()
    }

    /// The end of the archive. Answers what it was written to.
    pub(crate) fn finish(mut self) -> io::Result<File> {
        self.write_all(&[0; 2 * BLOCK_LEN])?;
        self.send()?;
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(self.stream.unwrap_or(file))
    }

    /// Sends on what is whole, where it is not yet where it goes.
    fn send(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        self.file.rewind()?;
        let file = self.file.get_ref();
        if io::copy(&mut file.take(self.at), stream)? != self.at {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.file.rewind()?;
        self.file.get_ref().set_len(0)?;
        self.at = 0;
        Ok(())
    }
}

impl Write for TarWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.file.write(bytes)?;
        self.at += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn header(name: &str, size: u64) -> io::Result<[u8; BLOCK_LEN]> {
    let mut header = [0_u8; BLOCK_LEN];
    if name.len() > 100 {
        return Err(bad(format!("member name {name:?} is too long")));
    }
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..108].copy_from_slice(b"0000644\0");
    header[108..116].copy_from_slice(b"0000000\0");
    header[116..124].copy_from_slice(b"0000000\0");
    if size < 1 << 33 {
        header[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    } else {
        header[124] = 0x80;
        header[128..136].copy_from_slice(&size.to_be_bytes());
    }
    // Times say nothing about an image, and equal images shall make equal archives.
    header[136..148].copy_from_slice(b"00000000000\0");
    header[156] = b'0';
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum = header_sum(&header);
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &File, member: &Member) -> Vec<u8> {
        let Member::File { offset, size } = member else { panic!("{member:?}") };
        let mut out = vec![0; usize::try_from(*size).unwrap()];
        file.read_exact_at(&mut out, *offset).unwrap();
        out
    }

    #[test]
    fn what_is_written_is_found() {
        let mut writer = TarWriter::new(tempfile::tempfile().unwrap());
        for (name, data) in [("a", &b"one"[..]), ("dir/b", &[7; 512]), ("empty", b"")] {
            let start = writer.begin().unwrap();
            writer.write_all(data).unwrap();
            writer.end(start, name).unwrap();
        }
        let file = writer.finish().unwrap();
        let members = index(&file).unwrap();
        assert_eq!(members.len(), 3);
        assert_eq!(read(&file, &members["a"]), b"one");
        assert_eq!(read(&file, &members["dir/b"]), [7; 512]);
        assert_eq!(read(&file, &members["empty"]), b"");
    }

    #[test]
    fn a_stream_is_what_a_file_would_be() {
        let write = |mut writer: TarWriter| {
            for (name, data) in [("a", vec![1; 700]), ("dir/b", vec![7; 300_000]), ("empty", vec![])] {
                let start = writer.begin().unwrap();
                writer.write_all(&data).unwrap();
                writer.end(start, name).unwrap();
            }
            let mut file = writer.finish().unwrap();
            file.rewind().unwrap();
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).unwrap();
            bytes
        };
        let file = || tempfile::tempfile().unwrap();
        assert_eq!(write(TarWriter::through(file(), file())), write(TarWriter::new(file())));
    }

    #[test]
    fn large_sizes_and_long_names() {
        let large = header("big", 20 << 30).unwrap();
        assert_eq!(number(&large[124..136]).unwrap(), 20 << 30);
        assert!(header_sum_fits(&large));
        let long = "x/".repeat(90) + "end";
        let mut writer = TarWriter::new(tempfile::tempfile().unwrap());
        let record = format!("path={long}\n");
        let total = record.len() + 4;
        let start = writer.begin().unwrap();
        writer.write_all(format!("{total} {record}").as_bytes()).unwrap();
        writer.end(start, "pax").unwrap();
        let start = writer.begin().unwrap();
        writer.write_all(b"data").unwrap();
        writer.end(start, "short").unwrap();
        let file = writer.finish().unwrap();
        // Turn the first member into a pax header.
        let mut first = header("pax", total as u64).unwrap();
        first[156] = b'x';
        let sum = header_sum(&first);
        first[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        file.write_all_at(&first, 0).unwrap();
        let members = index(&file).unwrap();
        assert_eq!(members.keys().collect::<Vec<_>>(), [&long]);
    }

    #[test]
    fn other_files_are_refused() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[b'x'; 1024]).unwrap();
        let error = index(&file).expect_err("refused").to_string();
        assert_eq!(error, "it is no tar file");
    }

    #[test]
    fn a_cut_off_archive_is_refused() {
        let mut writer = TarWriter::new(tempfile::tempfile().unwrap());
        let start = writer.begin().unwrap();
        writer.write_all(&[1; 2000]).unwrap();
        writer.end(start, "a").unwrap();
        let file = writer.finish().unwrap();
        file.set_len(1500).unwrap();
        assert!(index(&file).is_err());
    }

    #[test]
    fn names() {
        for (name, want) in
            [("./a//b", Some("a/b")), ("/a", Some("a")), ("a/../b", Some("b")), ("../a", None), ("./", None)]
        {
            assert_eq!(normal(name).as_deref(), want, "{name}");
        }
        assert_eq!(link_target("x/layer.tar", "../y/layer.tar").as_deref(), Some("y/layer.tar"));
    }
}
