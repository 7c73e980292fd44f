//! `deferred.jsonl`: attributes that an ordinary user could not set on files, one JSON object per line, for a later process that
//! can.
//!
//! A line is written for an owner other than 0:0 (everything else belongs to 0:0, whichever owner it has on disk), a mode that
//! had to be widened so that the files stay readable and removable, a device (an empty file stands for it), a privileged extended
//! attribute, or a whiteout that could not be made. The last line for a path counts, and a line with `removed` revokes all
//! earlier lines for that path and for all below it.
//!
//! `below.jsonl` has such lines for directories that took their attributes over from layers below, when the layer was committed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::{BorrowedFd, OwnedFd};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;

/// Name of the file next to `fs/`.
pub(crate) const FILE: &str = "deferred.jsonl";
/// Name of the file for attributes that were taken over from layers below.
pub(crate) const BELOW: &str = "below.jsonl";

/// A line.
#[derive(Debug, Default, Serialize)]
pub(super) struct DeferredLine<'a> {
    /// The path, where it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) path: Option<&'a str>,
    /// The path otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) path_base64: Option<String>,
    /// Type of the entry.
    #[serde(rename = "type", skip_serializing_if = "str::is_empty")]
    pub(super) kind: &'static str,
    /// Owner and group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<(u32, u32)>,
    /// Octal.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "octal")]
    pub(super) mode: Option<u32>,
    /// Major and minor number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) device: Option<(u32, u32)>,
    /// Names and base64 values; names that are not UTF-8 with the replacement character.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) xattrs: BTreeMap<String, String>,
    /// The path is no longer what the lines before said.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) removed: bool,
}

impl DeferredLine<'_> {
    /// Something is worth a line.
    pub(super) fn says_something(&self) -> bool {
        self.owner.is_some() || self.mode.is_some() || self.device.is_some() || !self.xattrs.is_empty()
    }

    pub(super) fn add_xattr(&mut self, name: &[u8], value: &[u8]) {
        self.xattrs.insert(String::from_utf8_lossy(name).into_owned(), STANDARD.encode(value));
    }
}

#[expect(clippy::ref_option, reason = "the signature that serde asks for")]
fn octal<S: serde::Serializer>(mode: &Option<u32>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{:04o}", mode.unwrap_or_default()))
}

/// The file, created with the first line.
pub(super) struct Deferred {
    dir: OwnedFd,
    name: &'static str,
    out: Option<BufWriter<File>>,
    lines: u64,
}

impl Deferred {
    pub(super) fn new(dir: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self { dir: dir.try_clone_to_owned()?, name: FILE, out: None, lines: 0 })
    }

    /// Begins the file of attributes that are taken over from layers below. The file of an earlier attempt is removed.
    pub(super) fn below(dir: BorrowedFd<'_>) -> io::Result<Self> {
        match rustix::fs::unlinkat(dir, BELOW, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Self { name: BELOW, ..Self::new(dir)? })
    }

    pub(super) fn write<'a>(&mut self, path: &'a [u8], mut line: DeferredLine<'a>) -> io::Result<()> {
        match std::str::from_utf8(path) {
            Ok(text) => line.path = Some(text),
            Err(_) => line.path_base64 = Some(STANDARD.encode(path)),
        }
        if self.out.is_none() {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = rustix::fs::openat(&self.dir, self.name, flags, Mode::from_raw_mode(0o600))?;
            self.out = Some(BufWriter::with_capacity(64 << 10, File::from(fd)));
        }
        if let Some(out) = &mut self.out {
            serde_json::to_writer(&mut *out, &line)?;
            out.write_all(b"\n")?;
        }
        self.lines += u64::from(!line.removed);
        Ok(())
    }

    /// Takes back what earlier lines say of a path; nothing is written where nothing was said yet.
    pub(super) fn removed(&mut self, path: &[u8]) -> io::Result<()> {
        if self.out.is_none() {
            return Ok(());
        }
        self.write(path, DeferredLine { removed: true, ..DeferredLine::default() })
    }

    /// Ends the file; how many lines say something.
    pub(super) fn finish(mut self) -> io::Result<u64> {
        if let Some(out) = &mut self.out {
            out.flush()?;
        }
        Ok(self.lines)
    }
}
