//! [`rebuild`]: from the recipe and the files back to the stream.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::erofs::Inodes;
use super::error::{RecipeError, damaged};
use super::{BUFFER, DATA, END, FILE, INODE, MAGIC, MOVED, RAW, REPLACED};
use crate::disk::beneath::Beneath;
use crate::tar::shown;

/// Longest path in a recipe: far more than the unpacker's limit can be set to in earnest.
const PATH_MOST: u64 = 1 << 20;

/// Writes the tar stream that `layer_dir` (with `fs/` or `layer.erofs`, and `recipe.zst`) was unpacked from, bit for bit. Files
/// are opened below `layer_dir` without following symbolic links. Does not hash: callers that need certainty compare the diff id
/// of the written stream.
///
/// # Errors
/// See [`RecipeError`].
pub fn rebuild(layer_dir: BorrowedFd<'_>, out: &mut dyn Write) -> Result<(), RecipeError> {
    // Reads the whole recipe, so that damage to it is found before anything is written.
    let moves = Moves::read(layer_dir)?;
    let mut recipe = Recipe::open(layer_dir)?;
    let mut files = LayerFiles { layer_dir, beneath: Beneath::default(), buffer: vec![0; BUFFER] };
    let mut inodes = Inodes::new(layer_dir);
    let (mut written, mut data_records) = (0_u64, 0_u64);
    loop {
        match recipe.next()? {
            RecipeRecord::Raw(len) => {
                recipe.copy(len, out)?;
                written += len;
            }
            RecipeRecord::Data { path, offset, len } => {
                let place = moves.place(&path, data_records);
                files.copy(&place, offset, len, out)?;
                data_records += 1;
                written += len;
            }
            RecipeRecord::Inode { nid, offset, len } => {
                inodes.copy((nid, offset, len), &mut files.buffer, out)?;
                written += len;
            }
            RecipeRecord::Moved { .. } => {}
            RecipeRecord::End { stream_bytes } if stream_bytes == written => return Ok(()),
            RecipeRecord::End { stream_bytes } => {
                return Err(damaged(format!("the recipe makes {written} bytes instead of {stream_bytes}")));
            }
        }
    }
}

/// Checks that the recipe is whole, and every file present and long enough, without reading the files. Returns the length of the
/// stream.
///
/// # Errors
/// See [`RecipeError`].
pub(crate) fn examine(layer_dir: BorrowedFd<'_>) -> Result<u64, RecipeError> {
    let moves = Moves::read(layer_dir)?;
    let mut recipe = Recipe::open(layer_dir)?;
    let mut files = LayerFiles { layer_dir, beneath: Beneath::default(), buffer: Vec::new() };
    let mut inodes = Inodes::new(layer_dir);
    let mut data_records = 0_u64;
    loop {
        match recipe.next()? {
            RecipeRecord::Raw(len) => recipe.copy(len, &mut io::sink())?,
            RecipeRecord::Data { path, offset, len } => {
                files.open(&moves.place(&path, data_records), offset, len)?;
                data_records += 1;
            }
            RecipeRecord::Inode { nid, offset, len } => {
                inodes.file(nid, offset, len)?;
            }
            RecipeRecord::Moved { .. } => {}
            RecipeRecord::End { stream_bytes } => return Ok(stream_bytes),
        }
    }
}

/// The inodes of the image that a recipe names, one for each piece of data, in the order of the stream.
///
/// # Errors
/// See [`RecipeError`].
pub(crate) fn inodes(layer_dir: BorrowedFd<'_>) -> Result<Vec<erofs::Nid>, RecipeError> {
    let mut recipe = Recipe::open(layer_dir)?;
    let mut all = Vec::new();
    loop {
        match recipe.next()? {
            RecipeRecord::Raw(len) => recipe.copy(len, &mut io::sink())?,
            RecipeRecord::Inode { nid, .. } => all.push(erofs::Nid(nid)),
            RecipeRecord::Data { .. } | RecipeRecord::Moved { .. } => {}
            RecipeRecord::End { .. } => return Ok(all),
        }
    }
}

enum RecipeRecord {
    Raw(u64),
    Data { path: Vec<u8>, offset: u64, len: u64 },
    Inode { nid: u64, offset: u64, len: u64 },
    Moved { path: Vec<u8>, number: u64 },
    End { stream_bytes: u64 },
}

struct Recipe {
    input: BufReader<zstd::stream::read::Decoder<'static, BufReader<File>>>,
}

impl Recipe {
    fn open(layer_dir: BorrowedFd<'_>) -> Result<Self, RecipeError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat(layer_dir, FILE, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Err(RecipeError::Missing),
            Err(error) => return Err(Self::failed(error.into())),
        };
        let decoder = zstd::stream::read::Decoder::new(File::from(fd)).map_err(Self::failed)?;
        let mut recipe = Self { input: BufReader::with_capacity(BUFFER, decoder) };
        let mut magic = [0; MAGIC.len()];
        recipe.input.read_exact(&mut magic).map_err(Self::failed)?;
        if magic != MAGIC {
            return Err(damaged("the recipe is of an unknown version"));
        }
        Ok(recipe)
    }

    fn failed(error: io::Error) -> RecipeError {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return damaged("the recipe ends too early");
        }
        RecipeError::Read { path: FILE.into(), source: error }
    }

    fn next(&mut self) -> Result<RecipeRecord, RecipeError> {
        Ok(match self.byte()? {
            RAW => RecipeRecord::Raw(self.number()?),
            DATA => RecipeRecord::Data { path: self.path()?, offset: self.number()?, len: self.number()? },
            INODE => RecipeRecord::Inode { nid: self.number()?, offset: self.number()?, len: self.number()? },
            MOVED => RecipeRecord::Moved { path: self.path()?, number: self.number()? },
            END => self.end()?,
            _ => return Err(damaged("the recipe has an unknown record")),
        })
    }

    /// The last record. Reading on to the end of the zstd frame checks its checksum.
    fn end(&mut self) -> Result<RecipeRecord, RecipeError> {
        let stream_bytes = self.number()?;
        if !self.input.fill_buf().map_err(Self::failed)?.is_empty() {
            return Err(damaged("the recipe goes on after its end"));
        }
        Ok(RecipeRecord::End { stream_bytes })
    }

    /// Hands on the bytes of a raw record.
    fn copy(&mut self, len: u64, out: &mut dyn Write) -> Result<(), RecipeError> {
        let mut left = len;
        while left > 0 {
            let bytes = self.input.fill_buf().map_err(Self::failed)?;
            if bytes.is_empty() {
                return Err(damaged("the recipe ends too early"));
            }
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
            out.write_all(&bytes[..most]).map_err(RecipeError::Write)?;
            self.input.consume(most);
            left -= most as u64;
        }
        Ok(())
    }

    fn byte(&mut self) -> Result<u8, RecipeError> {
        let mut byte = [0];
        self.input.read_exact(&mut byte).map_err(Self::failed)?;
        Ok(byte[0])
    }

    fn number(&mut self) -> Result<u64, RecipeError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(damaged("the recipe has a number without end"))
    }

    fn path(&mut self) -> Result<Vec<u8>, RecipeError> {
        let len = self.number()?;
        if len > PATH_MOST {
            return Err(damaged("the recipe has a path without end"));
        }
        let mut path = Vec::new();
        (&mut self.input).take(len).read_to_end(&mut path).map_err(Self::failed)?;
        if path.len() as u64 != len {
            return Err(damaged("the recipe ends too early"));
        }
        Ok(path)
    }
}

/// Which paths were moved aside, and when: counted in data records before the move.
#[derive(Default)]
struct Moves {
    by_path: HashMap<Vec<u8>, Vec<(u64, u64)>>,
}

impl Moves {
    fn read(layer_dir: BorrowedFd<'_>) -> Result<Self, RecipeError> {
        let mut recipe = Recipe::open(layer_dir)?;
        let mut moves = Self::default();
        let mut data_records = 0;
        loop {
            match recipe.next()? {
                RecipeRecord::Raw(len) => recipe.copy(len, &mut io::sink())?,
                RecipeRecord::Data { .. } => data_records += 1,
                RecipeRecord::Inode { .. } => {}
                RecipeRecord::Moved { path, number } => {
                    moves.by_path.entry(path).or_default().push((data_records, number))
                }
                RecipeRecord::End { .. } => return Ok(moves),
            }
        }
    }

    /// Where the file is that was at `path` when the data record with this number (from 0) was written: the first move
    /// afterwards of the file, or of a directory above it, took it along.
    fn place(&self, path: &[u8], record: u64) -> Vec<u8> {
        let ends = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at).chain([path.len()]);
        let first = ends
            .filter_map(|end| {
                let moves = self.by_path.get(&path[..end])?;
                let next = moves.partition_point(|(at, _)| *at <= record);
                moves.get(next).map(|(at, number)| (*at, *number, end))
            })
            .min();
        match first {
            None => [b"fs/", path].concat(),
            Some((_, number, end)) => [format!("{REPLACED}/{number}").as_bytes(), &path[end..]].concat(),
        }
    }
}

struct LayerFiles<'a> {
    layer_dir: BorrowedFd<'a>,
    beneath: Beneath,
    buffer: Vec<u8>,
}

impl LayerFiles<'_> {
    fn failed(place: &[u8], error: Errno) -> RecipeError {
        match error {
            Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::XDEV | Errno::INVAL => {
                damaged(format!("the file {:?} is gone", shown(place)))
            }
            error => RecipeError::Read { path: shown(place), source: error.into() },
        }
    }

    /// A file that has these bytes.
    fn open(&mut self, place: &[u8], offset: u64, len: u64) -> Result<OwnedFd, RecipeError> {
        let failed = |error| Self::failed(place, error);
        // Without O_NONBLOCK the open of a fifo in the file's place would block.
        let fd: OwnedFd =
            self.beneath.open(self.layer_dir, place, OFlags::RDONLY | OFlags::NONBLOCK).map_err(failed)?;
        let stat = rustix::fs::fstat(&fd).map_err(failed)?;
        let end = offset.checked_add(len);
        let has = u64::try_from(stat.st_size).unwrap_or_default();
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || end.is_none_or(|end| end > has) {
            return Err(damaged(format!("the file {:?} is not what it was", shown(place))));
        }
        Ok(fd)
    }

    fn copy(&mut self, place: &[u8], offset: u64, len: u64, out: &mut dyn Write) -> Result<(), RecipeError> {
        let fd = self.open(place, offset, len)?;
        let (mut at, mut left) = (offset, len);
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(self.buffer.len());
            match rustix::io::pread(fd.as_fd(), &mut self.buffer[..most], at) {
                Ok(0) => return Err(damaged(format!("the file {:?} is not what it was", shown(place)))),
                Ok(read) => {
                    out.write_all(&self.buffer[..read]).map_err(RecipeError::Write)?;
                    at += read as u64;
                    left -= read as u64;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(Self::failed(place, error)),
            }
        }
        Ok(())
    }
}
