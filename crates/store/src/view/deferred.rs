//! The attributes that are recorded next to the files of an ordinary user's layer: owners, modes, devices and attributes that
//! could not be set when it was unpacked, and whiteouts that could not be made. Read from `deferred.jsonl`, which the unpacker
//! writes, and `below.jsonl`, which is written when attributes of lower layers are taken over; called by the view of directories,
//! and by commits for the layers above.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::os::fd::BorrowedFd;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::Deserialize;

use super::attributes::{Kind, Stat};
use crate::unpack::{Attributes, DEFERRED, DEFERRED_BELOW};

/// More than any line has: a path, and attributes up to the unpacker's limit.
const LINE_MOST: u64 = 128 << 20;

#[derive(Deserialize)]
struct DeferredLine {
    path: Option<String>,
    path_base64: Option<String>,
    #[serde(rename = "type", default)]
    kind: String,
    owner: Option<(u32, u32)>,
    mode: Option<String>,
    device: Option<(u32, u32)>,
    #[serde(default)]
    xattrs: BTreeMap<String, String>,
    #[serde(default)]
    removed: bool,
}

/// The recorded attributes of one path.
#[derive(Debug, Default)]
pub(super) struct RecordedAttributes {
    owner: Option<(u32, u32)>,
    mode: Option<u32>,
    /// The device that an empty file represents.
    device: Option<(Kind, (u32, u32))>,
    whiteout: bool,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The recorded attributes of a layer's paths.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    by_path: BTreeMap<Vec<u8>, RecordedAttributes>,
}

impl Deferred {
    /// Reads the files of the layer in this directory; without any, nothing is said.
    pub(crate) fn read(layer: BorrowedFd<'_>) -> io::Result<Self> {
        let mut deferred = Self::default();
        for name in [DEFERRED, DEFERRED_BELOW] {
            deferred.read_file(layer, name)?;
        }
        Ok(deferred)
    }

    fn read_file(&mut self, layer: BorrowedFd<'_>, name: &str) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(layer, name, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let mut input = BufReader::new(file);
        let mut text = Vec::new();
        loop {
            text.clear();
            if (&mut input).take(LINE_MOST).read_until(b'\n', &mut text)? == 0 {
                return Ok(());
            }
            self.add(serde_json::from_slice(&text)?, name)?;
        }
    }

    fn add(&mut self, line: DeferredLine, file: &str) -> io::Result<()> {
        let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("{file} has {what}"));
        let path = match (line.path, line.path_base64) {
            (Some(path), _) => path.into_bytes(),
            (None, Some(text)) => STANDARD.decode(text).map_err(|_| bad("a path that is no base64"))?,
            (None, None) => return Err(bad("a line without a path")),
        };
        if line.removed {
            let below = [path.as_slice(), b"/"].concat();
            let under: Vec<Vec<u8>> = self
                .by_path
                .range(below.clone()..)
                .map(|(k, _)| k)
                .take_while(|k| k.starts_with(&below))
                .cloned()
                .collect();
            for gone in under.iter().chain([&path]) {
                self.by_path.remove(gone);
            }
            return Ok(());
        }
        let mode = line.mode.map(|text| u32::from_str_radix(&text, 8).map_err(|_| bad("a mode that is none")));
        let kind = if line.kind == crate::tar::Kind::Block.word() { Kind::Block } else { Kind::Char };
        let value = |(name, text): (String, String)| {
            let value = STANDARD.decode(text).map_err(|_| bad("a value that is no base64"))?;
            Ok::<_, io::Error>((name.into_bytes(), value))
        };
        let told = RecordedAttributes {
            owner: line.owner,
            mode: mode.transpose()?.map(|mode| mode & 0o7777),
            device: line.device.map(|device| (kind, device)),
            whiteout: line.kind == "whiteout",
            xattrs: line.xattrs.into_iter().map(value).collect::<io::Result<_>>()?,
        };
        self.by_path.insert(path, told);
        Ok(())
    }

    pub(super) fn of(&self, path: &[u8]) -> Option<&RecordedAttributes> {
        self.by_path.get(path)
    }

    /// Returns true if a name is hidden without anything that says so on the disk.
    pub(super) fn hides(&self, path: &[u8]) -> bool {
        self.of(path).is_some_and(|told| told.whiteout)
    }

    /// The names in a directory that are hidden so.
    pub(super) fn hidden_in<'a>(&'a self, dir: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let below = if dir.is_empty() { Vec::new() } else { [dir, b"/"].concat() };
        let skip = below.len();
        self.by_path
            .range(below.clone()..)
            .take_while(move |(path, _)| path.starts_with(&below))
            .filter(move |(path, told)| told.whiteout && !path[skip..].contains(&b'/'))
            .map(move |(path, _)| &path[skip..])
    }

    /// Gives a directory its recorded attributes, for the layers above it.
    pub(crate) fn complete(&self, path: &[u8], attributes: &mut Attributes) {
        (attributes.uid, attributes.gid) = (0, 0);
        let Some(told) = self.of(path) else { return };
        if let Some(owner) = told.owner {
            (attributes.uid, attributes.gid) = owner;
        }
        if let Some(mode) = told.mode {
            attributes.mode = mode;
        }
        attributes.xattrs.extend(told.xattrs.iter().cloned());
    }

    /// Gives a file its recorded attributes. A file without any belongs to root.
    pub(super) fn apply(&self, path: &[u8], stat: &mut Stat) {
        (stat.uid, stat.gid) = (0, 0);
        let Some(told) = self.of(path) else { return };
        if let Some(owner) = told.owner {
            (stat.uid, stat.gid) = owner;
        }
        if let Some(mode) = told.mode {
            stat.mode = mode;
        }
        if let Some((kind, device)) = told.device {
            (stat.kind, stat.device, stat.size) = (kind, device, 0);
        }
    }
}
