//! Archives for tests, made byte by byte so that every kind of wrongness can be written as well.

/// A header and its data.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) path: Vec<u8>,
    pub(crate) flag: u8,
    pub(crate) mode: u32,
    pub(crate) uid: u64,
    pub(crate) gid: u64,
    pub(crate) mtime: u64,
    pub(crate) link: Vec<u8>,
    pub(crate) device: (u32, u32),
    pub(crate) data: Vec<u8>,
    /// The length in the header, where it is not that of the data.
    pub(crate) size: Option<u64>,
}

/// The time of everything that says nothing else.
pub(crate) const MTIME: u64 = 1_700_000_000;

impl Item {
    pub(crate) fn new(flag: u8, path: impl AsRef<[u8]>) -> Self {
        Self {
            path: path.as_ref().to_vec(),
            flag,
            mode: if flag == b'5' { 0o755 } else { 0o644 },
            uid: 0,
            gid: 0,
            mtime: MTIME,
            link: Vec::new(),
            device: (0, 0),
            data: Vec::new(),
            size: None,
        }
    }

    pub(crate) fn data(mut self, data: impl AsRef<[u8]>) -> Self {
        self.data = data.as_ref().to_vec();
        self
    }

    pub(crate) fn link(mut self, link: impl AsRef<[u8]>) -> Self {
        self.link = link.as_ref().to_vec();
        self
    }

    pub(crate) fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    pub(crate) fn owner(mut self, uid: u64, gid: u64) -> Self {
        (self.uid, self.gid) = (uid, gid);
        self
    }

    pub(crate) fn device(mut self, major: u32, minor: u32) -> Self {
        self.device = (major, minor);
        self
    }
}

/// An archive in the making.
#[derive(Clone, Default)]
pub(crate) struct Tar {
    pub(crate) bytes: Vec<u8>,
}

/// Headers in short: kind and name, target where there is one, length of the data.
impl std::fmt::Debug for Tar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let headers = self.bytes.chunks(512).filter(|block| block.get(257..262) == Some(b"ustar"));
        let text = |field: &[u8]| String::from_utf8_lossy(field).trim_end_matches('\0').to_owned();
        let short = |block: &[u8]| {
            let kind = char::from(block[156]);
            format!("{kind} {} -> {} {}", text(&block[..100]), text(&block[157..257]), text(&block[124..136]))
        };
        f.debug_list().entries(headers.map(short)).finish()
    }
}

impl Tar {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn item(mut self, item: &Item) -> Self {
        if item.path.len() > 100 {
            self = self.meta(b'L', &[&item.path[..], b"\0"].concat());
        }
        if item.link.len() > 100 {
            self = self.meta(b'K', &[&item.link[..], b"\0"].concat());
        }
        self.bytes.extend_from_slice(&header(item));
        self.blocks(&item.data)
    }

    pub(crate) fn file(self, path: impl AsRef<[u8]>, data: impl AsRef<[u8]>) -> Self {
        self.item(&Item::new(b'0', path).data(data))
    }

    pub(crate) fn dir(self, path: impl AsRef<[u8]>) -> Self {
        self.item(&Item::new(b'5', path))
    }

    pub(crate) fn symlink(self, path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Self {
        self.item(&Item::new(b'2', path).link(target))
    }

    pub(crate) fn link(self, path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Self {
        self.item(&Item::new(b'1', path).link(target))
    }

    /// An extended header of these records.
    pub(crate) fn pax(self, records: &[(&str, &[u8])]) -> Self {
        let body: Vec<u8> = records.iter().flat_map(|(key, value)| record(key, value)).collect();
        self.meta(b'x', &body)
    }

    pub(crate) fn global(self, records: &[(&str, &[u8])]) -> Self {
        let body: Vec<u8> = records.iter().flat_map(|(key, value)| record(key, value)).collect();
        self.meta(b'g', &body)
    }

    /// A meta header with a body.
    pub(crate) fn meta(mut self, flag: u8, body: &[u8]) -> Self {
        self.bytes.extend_from_slice(&header(&Item::new(flag, "././@meta").data(body)));
        self.blocks(body)
    }

    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Data, filled up to a block.
    pub(crate) fn blocks(mut self, data: &[u8]) -> Self {
        self.bytes.extend_from_slice(data);
        self.bytes.resize(self.bytes.len().next_multiple_of(512), 0);
        self
    }

    /// With the two zero blocks.
    pub(crate) fn end(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 1024, 0);
        self.bytes
    }
}

/// A PAX record.
pub(crate) fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let body = key.len() + value.len() + 3;
    let mut len = body + 1;
    while len != body + len.to_string().len() {
        len += 1;
    }
    [format!("{len} {key}=").as_bytes(), value, b"\n"].concat()
}

/// The header block, GNU style when numbers do not fit into octal digits.
pub(crate) fn header(item: &Item) -> [u8; 512] {
    let mut block = [0_u8; 512];
    let put = |block: &mut [u8; 512], at: usize, bytes: &[u8], most: usize| {
        let bytes = &bytes[..bytes.len().min(most)];
        block[at..at + bytes.len()].copy_from_slice(bytes);
    };
    let number = |block: &mut [u8; 512], at: usize, len: usize, value: u64| {
        let octal = format!("{value:0width$o}\0", width = len - 1);
        if octal.len() > len {
            block[at..at + len].fill(0);
            block[at + len - 8..at + len].copy_from_slice(&value.to_be_bytes());
            block[at] |= 0x80;
        } else {
            block[at..at + len].copy_from_slice(octal.as_bytes());
        }
    };
    put(&mut block, 0, &item.path, 100);
    number(&mut block, 100, 8, item.mode.into());
    number(&mut block, 108, 8, item.uid);
    number(&mut block, 116, 8, item.gid);
    number(&mut block, 124, 12, item.size.unwrap_or(item.data.len() as u64));
    number(&mut block, 136, 12, item.mtime);
    block[156] = item.flag;
    put(&mut block, 157, &item.link, 100);
    put(&mut block, 257, b"ustar  \0", 8);
    number(&mut block, 329, 8, item.device.0.into());
    number(&mut block, 337, 8, item.device.1.into());
    seal(&mut block);
    block
}

/// Writes the checksum.
pub(crate) fn seal(block: &mut [u8; 512]) {
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|b| u32::from(*b)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}
