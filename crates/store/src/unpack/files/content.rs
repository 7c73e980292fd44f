//! The content of regular files: from the reader's buffers straight to `write(2)`, holes left out.

use std::num::NonZeroU64;
use std::os::fd::OwnedFd;

use rustix::fs::Advice;
use rustix::io::Errno;

use super::super::error::{UnpackError, failed, recipe, refused};
use super::super::form::Unpacker;
use super::super::tree::Id;
use super::Files;
use crate::tar::{Entry, Reader};

/// Most bytes of one `write(2)`.
const WRITE: usize = 1 << 20;
/// After so many bytes of a file the kernel is asked to begin to write them to the disk, because the commit of an image waits
/// until everything is there. With 1.2 GB of big files that arrived at the pace of an inflater, the sync at the end took 0.1 s
/// instead of 1.3 s (medians of six, loop-mounted ext4, loaded machine). Smaller files are left to the kernel.
const WRITE_BACK: u64 = 8 << 20;

impl Unpacker<'_, Files<'_>> {
    pub(super) fn regular_file(
        &mut self,
        reader: &mut Reader<'_>,
        entry: &Entry,
        dir: Id,
        leaf: &[u8],
    ) -> Result<(), UnpackError> {
        let mode = self.mode_on_creation(entry.mode, 0o600);
        let fd = self.create_file(dir, leaf, mode)?;
        let path = self.tree.path_of(dir, leaf);
        let disk = match &entry.pieces {
            None => self.whole(reader, &fd, &path, entry.size)?,
            Some(pieces) => {
                let (mut disk, mut counted) = (0, 0);
                for piece in pieces.iter().filter(|piece| piece.len > 0) {
                    rustix::fs::seek(&fd, rustix::fs::SeekFrom::Start(piece.offset))
                        .map_err(|e| failed("writing", &path, e))?;
                    self.data(reader, &fd, &path, piece.offset, piece.len)?;
                    self.recipe.data(&path, piece.offset, piece.len).map_err(recipe)?;
                    // Two pieces may share a block.
                    let block = self.form.defaults.block;
                    let begin = (piece.offset / block * block).max(counted);
                    counted = self.form.defaults.blocks(piece.offset + piece.len);
                    disk += counted.saturating_sub(begin);
                }
                rustix::fs::ftruncate(&fd, entry.size).map_err(|e| failed("writing", &path, e))?;
                disk
            }
        };
        let extra = self.dress_file(&fd, entry, mode, &path)?;
        let disk = extra.unwrap_or(disk);
        self.outcome.disk_bytes += disk;
        self.outcome.largest.note(disk, &path);
        if let Some(written) = self.options.write_back {
            written(entry.size);
        }
        Ok(())
    }

    fn whole(&mut self, reader: &mut Reader<'_>, fd: &OwnedFd, path: &[u8], size: u64) -> Result<u64, UnpackError> {
        if size > 0 {
            self.data(reader, fd, path, 0, size)?;
            if self.options.hollow {
                rustix::fs::ftruncate(fd, size).map_err(|e| failed("writing", path, e))?;
            }
            self.recipe.data(path, 0, size).map_err(recipe)?;
        }
        Ok(self.form.defaults.blocks(size))
    }

    /// Writes the next `len` bytes of the entry's data, from the reader's buffer straight to the file, whose position is
    /// `offset`.
    fn data(
        &mut self,
        reader: &mut Reader<'_>,
        fd: &OwnedFd,
        path: &[u8],
        offset: u64,
        len: u64,
    ) -> Result<(), UnpackError> {
        let (mut at, end, mut begun) = (offset, offset + len, offset);
        while at < end {
            let most = usize::try_from(end - at).unwrap_or(WRITE).min(WRITE);
            let mut data = reader.data(most)?;
            if data.is_empty() {
                // The reader holds sparse maps against the data, so that this is a fault of ours.
                return Err(refused(path, "its data is shorter than its map says"));
            }
            at += data.len() as u64;
            if self.options.hollow {
                self.check_cancelled()?;
                continue;
            }
            while !data.is_empty() {
                match rustix::io::write(fd, data) {
                    Ok(written) => data = &data[written..],
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(failed("writing", path, error)),
                }
            }
            if self.options.write_back.is_some() && at - begun >= WRITE_BACK {
                // Pages that are still being written stay in memory. An ignored advice is not an error.
                let _ = rustix::fs::fadvise(fd, begun, NonZeroU64::new(at - begun), Advice::DontNeed);
                begun = at;
            }
            self.check_cancelled()?;
        }
        Ok(())
    }
}
