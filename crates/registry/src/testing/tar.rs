//! A minimal tar writer: ustar headers, PAX records where those do not suffice, and every kind of entry that a layer
//! can have. It also writes invalid archives, since tests attack the readers with them.

const BLOCK: usize = 512;

/// The kind of an entry, with its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// Regular file with this content.
    File(Vec<u8>),
    /// Directory.
    Dir,
    /// Symbolic link to this target.
    Symlink(Vec<u8>),
    /// Hard link to this path within the layer.
    HardLink(Vec<u8>),
    /// Character device, major and minor number.
    Char(u32, u32),
    /// Block device, major and minor number.
    Block(u32, u32),
    /// Named pipe.
    Fifo,
    /// Any other type flag, with content.
    Other(u8, Vec<u8>),
}

/// An entry of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Path as it stands in the header; nothing is put in front or behind.
    pub path: Vec<u8>,
    /// The kind, with its content.
    pub kind: EntryKind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Owner's name.
    pub uname: String,
    /// Group's name.
    pub gname: String,
    /// Time of modification: seconds since 1970.
    pub mtime: i64,
    /// And nanoseconds; not zero makes a PAX record.
    pub mtime_nanos: u32,
    /// Extended attributes, written as `SCHILY.xattr.` records.
    pub xattrs: Vec<(String, Vec<u8>)>,
    /// Further PAX records, written as they are.
    pub pax: Vec<(String, Vec<u8>)>,
    /// Use GNU long-name entries instead of PAX records for long paths and targets.
    pub gnu_long_names: bool,
}

impl Entry {
    /// An entry of this kind with the usual mode, owned by root, of the year 2023.
    #[must_use]
    pub fn new(path: impl Into<Vec<u8>>, kind: EntryKind) -> Self {
        let mode = match kind {
            EntryKind::Dir => 0o755,
            EntryKind::Symlink(_) => 0o777,
            _ => 0o644,
        };
        Self {
            path: path.into(),
            kind,
            mode,
            uid: 0,
            gid: 0,
            uname: String::new(),
            gname: String::new(),
            mtime: 1_700_000_000,
            mtime_nanos: 0,
            xattrs: Vec::new(),
            pax: Vec::new(),
            gnu_long_names: false,
        }
    }

    /// Sets the permission bits.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Sets owner and group.
    #[must_use]
    pub fn owner(mut self, uid: u64, gid: u64) -> Self {
        (self.uid, self.gid) = (uid, gid);
        self
    }

    /// Sets the time of modification.
    #[must_use]
    pub fn mtime(mut self, seconds: i64, nanos: u32) -> Self {
        (self.mtime, self.mtime_nanos) = (seconds, nanos);
        self
    }

    /// Adds an extended attribute.
    #[must_use]
    pub fn xattr(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.xattrs.push((name.to_owned(), value.into()));
        self
    }

    /// Adds a PAX record.
    #[must_use]
    pub fn pax(mut self, key: &str, value: impl Into<Vec<u8>>) -> Self {
        self.pax.push((key.to_owned(), value.into()));
        self
    }

    /// Appends the entry with its content and padding.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let empty: &[u8] = &[];
        let (flag, target, content, device) = match &self.kind {
            EntryKind::File(content) => (b'0', empty, content.as_slice(), None),
            EntryKind::HardLink(target) => (b'1', target.as_slice(), empty, None),
            EntryKind::Symlink(target) => (b'2', target.as_slice(), empty, None),
            EntryKind::Char(major, minor) => (b'3', empty, empty, Some((*major, *minor))),
            EntryKind::Block(major, minor) => (b'4', empty, empty, Some((*major, *minor))),
            EntryKind::Dir => (b'5', empty, empty, None),
            EntryKind::Fifo => (b'6', empty, empty, None),
            EntryKind::Other(flag, content) => (*flag, empty, content.as_slice(), None),
        };
        let mut pax: Vec<(String, Vec<u8>)> = Vec::new();
        if self.path.len() > 100 {
            self.long(b'L', "path", &self.path, &mut pax, out);
        }
        if target.len() > 100 {
            self.long(b'K', "linkpath", target, &mut pax, out);
        }
        for (key, value) in [("uid", self.uid), ("gid", self.gid)] {
            if value > 0o777_7777 {
                pax.push((key.into(), value.to_string().into()));
            }
        }
        if self.mtime < 0 || self.mtime_nanos != 0 || self.mtime > 0o777_7777_7777 {
            pax.push(("mtime".into(), seconds(self.mtime, self.mtime_nanos).into()));
        }
        for (name, value) in &self.xattrs {
            pax.push((format!("SCHILY.xattr.{name}"), value.clone()));
        }
        pax.extend(self.pax.iter().cloned());
        if !pax.is_empty() {
            let records: Vec<u8> = pax.iter().flat_map(|(k, v)| record(k, v)).collect();
            block(out, &header(b"PaxHeaders.0/x", 0o644, 0, 0, records.len() as u64, 0, b'x', &[], self, None));
            padded(out, &records);
        }
        let mtime = u64::try_from(self.mtime).unwrap_or(0);
        let size = content.len() as u64;
        block(out, &header(&self.path, self.mode, self.uid, self.gid, size, mtime, flag, target, self, device));
        padded(out, content);
    }

    fn long(&self, flag: u8, key: &str, text: &[u8], pax: &mut Vec<(String, Vec<u8>)>, out: &mut Vec<u8>) {
        if !self.gnu_long_names {
            pax.push((key.into(), text.to_vec()));
            return;
        }
        let mut text = text.to_vec();
        text.push(0);
        block(out, &header(b"././@LongLink", 0, 0, 0, text.len() as u64, 0, flag, &[], self, None));
        padded(out, &text);
    }
}

/// The two empty blocks at the end.
pub(super) fn finish(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0; 2 * BLOCK]);
}

fn block(out: &mut Vec<u8>, header: &[u8; BLOCK]) {
    out.extend_from_slice(header);
}

fn padded(out: &mut Vec<u8>, content: &[u8]) {
    out.extend_from_slice(content);
    out.resize(out.len().next_multiple_of(BLOCK), 0);
}

/// `length key=value\n`, where the length counts itself.
fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut total = rest + 1;
    while total.to_string().len() + rest != total {
        total = total.to_string().len() + rest;
    }
    let mut out = format!("{total} {key}=").into_bytes();
    out.extend_from_slice(value);
    out.push(b'\n');
    out
}

fn seconds(whole: i64, nanos: u32) -> String {
    if nanos == 0 {
        return whole.to_string();
    }
    // The value is whole + nanos, so that a negative one is written with the fraction subtracted.
    if whole < 0 {
        return format!("-{}.{:09}", -(whole + 1), 1_000_000_000 - nanos);
    }
    format!("{whole}.{nanos:09}")
}

fn put(header: &mut [u8; BLOCK], at: usize, len: usize, text: &[u8]) {
    let n = text.len().min(len);
    header[at..at + n].copy_from_slice(&text[..n]);
}

fn octal(header: &mut [u8; BLOCK], at: usize, len: usize, value: u64) {
    let digits = len - 1;
    let max = if digits * 3 >= 64 { u64::MAX } else { (1 << (digits * 3)) - 1 };
    put(header, at, len, format!("{:0digits$o}", value.min(max)).as_bytes());
}

#[expect(clippy::too_many_arguments, reason = "the fields of a tar header")]
fn header(
    path: &[u8],
    mode: u32,
    uid: u64,
    gid: u64,
    size: u64,
    mtime: u64,
    flag: u8,
    target: &[u8],
    names: &Entry,
    device: Option<(u32, u32)>,
) -> [u8; BLOCK] {
    let mut h = [0_u8; BLOCK];
    put(&mut h, 0, 100, path);
    octal(&mut h, 100, 8, u64::from(mode));
    octal(&mut h, 108, 8, uid);
    octal(&mut h, 116, 8, gid);
    octal(&mut h, 124, 12, size);
    octal(&mut h, 136, 12, mtime);
    h[156] = flag;
    put(&mut h, 157, 100, target);
    put(&mut h, 257, 8, b"ustar\x0000");
    put(&mut h, 265, 32, names.uname.as_bytes());
    put(&mut h, 297, 32, names.gname.as_bytes());
    if let Some((major, minor)) = device {
        octal(&mut h, 329, 8, u64::from(major));
        octal(&mut h, 337, 8, u64::from(minor));
    }
    put(&mut h, 148, 8, b"        ");
    let sum: u64 = h.iter().map(|b| u64::from(*b)).sum();
    put(&mut h, 148, 8, format!("{sum:06o}\0 ").as_bytes());
    h
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_themselves() {
        for len in [0, 1, 5, 89, 90, 91, 92, 93, 985, 986, 987, 990] {
            let got = record("k", &vec![b'v'; len]);
            let said: usize = std::str::from_utf8(&got)
                .expect("text")
                .split(' ')
                .next()
                .and_then(|n| n.parse().ok())
                .expect("a length");
            assert_eq!(said, got.len(), "{len}");
        }
    }

    #[test]
    fn times() {
        assert_eq!(seconds(5, 0), "5");
        assert_eq!(seconds(5, 7), "5.000000007");
        assert_eq!(seconds(-2, 250_000_000), "-1.750000000");
    }

    #[test]
    fn blocks_and_checksum() {
        let mut out = Vec::new();
        Entry::new("a", EntryKind::File(b"hello".to_vec())).write(&mut out);
        assert_eq!(out.len(), 1024);
        let mut h = out[..512].to_vec();
        let said = u64::from_str_radix(std::str::from_utf8(&h[148..154]).expect("text"), 8).expect("octal");
        h[148..156].fill(b' ');
        assert_eq!(said, h.iter().map(|b| u64::from(*b)).sum::<u64>());
        assert_eq!(&h[124..136], b"00000000005\0");
    }
}
