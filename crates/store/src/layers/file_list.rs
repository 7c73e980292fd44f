//! The list of a layer's files that are worth sharing: `files.zst` next to `fs/`, written with the layer and never changed. It is
//! a hint where to search for files, and says which layers have a file in common. A list that is missing or unreadable is an
//! empty one.
//!
//! A zstd stream: a line that names the version, then for each file, by size, numbers of eight bytes (little endian): size,
//! seconds and nanoseconds of its time, mode, user, group, inode, bytes on the disk, layer and inode of its origin, whether it
//! only has that one's blocks, length of its path; then the path.

use std::fs::File;
use std::io::{self, BufReader, Read, Write as _};
use std::os::fd::BorrowedFd;

use rustix::fs::{Mode, OFlags};

use crate::disk::layer::LayerId;

pub(crate) const LIST: &str = "files.zst";
/// Path of a row of blocks of the layer's own EROFS file.
pub(crate) const OWN: &[u8] = b"=";
/// Path of a row of blocks that the layer has in a device.
pub(crate) const ELSEWHERE: &[u8] = b"@";
const MAGIC: &[u8] = b"imagelet files 1\n";
const NUMBERS: usize = 12;
const PATH_MOST: u64 = 1 << 20;

/// The attributes that files must have in common to be links to each other. Ordered by size first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileKey {
    pub(crate) size: u64,
    pub(crate) seconds: i64,
    pub(crate) nanos: u32,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Where a file first was. Never used twice, since the numbers of layers are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileOrigin {
    pub(crate) layer: u64,
    pub(crate) ino: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedFile {
    pub(crate) key: FileKey,
    pub(crate) ino: u64,
    pub(crate) bytes: u64,
    /// `None`: this is where it first was.
    pub(crate) origin: Option<FileOrigin>,
    /// True if it has the origin's blocks, and an inode of its own.
    pub(crate) cloned: bool,
    /// Relative to the layer's directory.
    pub(crate) path: Vec<u8>,
}

impl ListedFile {
    /// The file's object, in the list of this layer.
    pub(crate) fn object(&self, layer: LayerId) -> FileOrigin {
        self.origin.unwrap_or(FileOrigin { layer: layer.0, ino: self.ino })
    }
}

pub(crate) fn write(layer: BorrowedFd<'_>, files: &[ListedFile]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(layer, LIST, flags, Mode::RUSR | Mode::WUSR)?);
    let mut out = zstd::stream::write::Encoder::new(file, 1)?;
    out.include_checksum(true)?;
    out.write_all(MAGIC)?;
    for ListedFile { key, ino, bytes, origin, cloned, path } in files {
        let FileOrigin { layer, ino: origin } = origin.unwrap_or(FileOrigin { layer: 0, ino: 0 });
        let seconds = u64::from_le_bytes(key.seconds.to_le_bytes());
        let (nanos, mode, uid, gid) = (key.nanos.into(), key.mode.into(), key.uid.into(), key.gid.into());
        let numbers: [u64; NUMBERS] = [
            key.size,
            seconds,
            nanos,
            mode,
            uid,
            gid,
            *ino,
            *bytes,
            layer,
            origin,
            u64::from(*cloned),
            path.len() as u64,
        ];
        for number in numbers {
            out.write_all(&number.to_le_bytes())?;
        }
        out.write_all(path)?;
    }
    out.finish()?;
    Ok(())
}

/// The files of a layer's list, one after the other.
pub(crate) fn read_list(layer: BorrowedFd<'_>) -> io::Result<impl Iterator<Item = io::Result<ListedFile>>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(layer, LIST, flags, Mode::empty()) {
        Ok(file) => Some(File::from(file)),
        Err(rustix::io::Errno::NOENT) => None,
        Err(error) => return Err(error.into()),
    };
    let mut input = match file {
        None => None,
        Some(file) => {
            let mut input = BufReader::new(zstd::stream::read::Decoder::new(file)?);
            let mut magic = [0; MAGIC.len()];
            input.read_exact(&mut magic)?;
            if magic != MAGIC {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no list of files"));
            }
            Some(input)
        }
    };
    Ok(std::iter::from_fn(move || one(input.as_mut()?).transpose()))
}

fn one(input: &mut impl Read) -> io::Result<Option<ListedFile>> {
    let mut bytes = [0; NUMBERS * 8];
    match input.read(&mut bytes[..1])? {
        0 => return Ok(None),
        _ => input.read_exact(&mut bytes[1..])?,
    }
    let mut numbers = [0_u64; NUMBERS];
    for (number, bytes) in numbers.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *number = u64::from_le_bytes(*bytes);
    }
    let [size, seconds, nanos, mode, uid, gid, ino, on_disk, layer, origin, cloned, length] = numbers;
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "a number is too large");
    let small = |number: u64| u32::try_from(number).map_err(|_| wrong());
    if length > PATH_MOST {
        return Err(wrong());
    }
    let mut path = vec![0; usize::try_from(length).map_err(|_| wrong())?];
    input.read_exact(&mut path)?;
    let seconds = i64::from_le_bytes(seconds.to_le_bytes());
    let key = FileKey { size, seconds, nanos: small(nanos)?, mode: small(mode)?, uid: small(uid)?, gid: small(gid)? };
    let origin = (layer > 0).then_some(FileOrigin { layer, ino: origin });
    Ok(Some(ListedFile { key, ino, bytes: on_disk, origin, cloned: cloned != 0, path }))
}
