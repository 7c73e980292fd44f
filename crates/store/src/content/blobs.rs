//! Kept blobs: compressed layers as they were fetched, in numbered files under `blobs/`. A blob is stored once, however many
//! images name it, and is freed when the last of these is removed; a commit adds it to the store together with its image. No
//! image needs one: a blob that is lost or damaged is dropped, and the image stays. Writers and readers verify the content
//! themselves.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write as _};
use std::sync::Arc;

use oci::{Digest, Document, Manifest};
use redb::WriteTransaction;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::content::Content;
use crate::content::private::Private;
use crate::content::spool;
use crate::disk::layout::BLOBS;
use crate::disk::usage::bytes_on_disk;
use crate::error::StoreError;
use crate::records::entries::{BlobEntry, ImageEntry};
use crate::records::release::drop_record;
use crate::records::tables::{Records, RecordsMut};

impl Content {
    /// A private file for a blob that is on its way, or nothing where the store has that blob. The file vanishes with the
    /// value, unless a commit took it.
    ///
    /// # Errors
    /// The file could not be made, or the database could not be read.
    pub(crate) fn new_blob(self: &Arc<Self>, digest: &Digest, size: u64) -> Result<Option<BlobIngest>, StoreError> {
        let recorded = self.catalog.db.read(|records| records.blob(digest))?;
        if recorded.is_some_and(|entry| entry.size == size && self.has_blob(&entry)) {
            return Ok(None);
        }
        let private = self.private();
        let path = self.catalog.disk.layout.ingest_path(private.number);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(
            &self.catalog.disk.layout.ingest,
            private.name().as_str(),
            flags,
            Mode::RUSR | Mode::WUSR,
        )
        .map_err(|error| StoreError::io("create", path, error))?;
        Ok(Some(BlobIngest { private, file: File::from(file), digest: digest.clone(), size, written: 0 }))
    }

    /// A kept blob, for reading, and its size. What is read must be verified: files get damaged.
    ///
    /// # Errors
    /// The database could not be read, or the file could not be opened. A missing file is no error.
    pub(crate) fn open_recorded_blob(&self, digest: &Digest) -> Result<Option<(File, u64)>, StoreError> {
        let recorded = self.catalog.db.read(|records| records.blob(digest))?;
        let Some(entry) = recorded else { return Ok(None) };
        match self.open_blob(entry.number) {
            Ok(file) => Ok(Some((file, entry.size))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::io("open", self.catalog.disk.layout.blob_path(entry.number), error)),
        }
    }

    /// Drops a kept blob that was found damaged. The images that have it keep everything else.
    ///
    /// # Errors
    /// The database could not be written, or the file not be deleted.
    pub(crate) fn drop_blob(&self, digest: &Digest) -> Result<(), StoreError> {
        let _deleting = self.catalog.disk.deleting.read();
        let dropped = self.catalog.db.write(|transaction| drop_record(transaction, digest))?;
        self.delete_blobs(dropped.iter().map(|entry| entry.number))
    }
}

/// A blob that is being written.
#[derive(Debug)]
pub struct BlobIngest {
    private: Private,
    file: File,
    digest: Digest,
    size: u64,
    written: u64,
}

impl BlobIngest {
    /// Appends to the blob.
    ///
    /// # Errors
    /// The disk refused it.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.file.write_all(bytes).map_err(|error| self.private.failed("write", error))?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Declares the blob complete, and its digest verified by the caller. The blob may then become part of an image.
    ///
    /// # Errors
    /// There are more bytes or fewer than there should be.
    pub fn finish(self) -> Result<NewBlob, StoreError> {
        if self.written != self.size {
            let what = format!("{} bytes were written instead of {}", self.written, self.size);
            return Err(self.private.failed("keep", io::Error::new(io::ErrorKind::InvalidData, what)));
        }
        let disk_bytes = bytes_on_disk(|| rustix::fs::fstat(&self.file));
        let disk_bytes = disk_bytes.map_err(|error| self.private.failed("look at", error.into()))?;
        Ok(NewBlob { private: self.private, digest: self.digest, size: self.size, disk_bytes })
    }

    /// Gives the blob up. So does dropping it.
    pub fn abort(self) {}
}

impl NewBlob {
    /// Opens it for reading.
    ///
    /// # Errors
    /// The disk refused it.
    pub fn open(&self) -> Result<File, StoreError> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let content = self.private.content();
        let opened =
            rustix::fs::openat(&content.catalog.disk.layout.ingest, self.private.name().as_str(), flags, Mode::empty());
        opened.map(File::from).map_err(|error| self.private.failed("open", error.into()))
    }
}

/// A blob that is written and verified, and that no image has yet. Pulls that want the same one share it: a commit gives it a
/// second name, and the first one is removed with this value. Drop it on a thread that may block.
#[derive(Debug)]
pub struct NewBlob {
    private: Private,
    digest: Digest,
    size: u64,
    disk_bytes: u64,
}

impl NewBlob {
    /// The digest that its bytes were verified to have.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// How many bytes it has.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// How many bytes of the disk it takes.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    /// Notes that from now on a stop of the process must not lose it. `origin` says where it was fetched from.
    ///
    /// # Errors
    /// The note could not be written. The blob is as good as before.
    pub fn note_whole(&mut self, origin: &str) -> Result<(), StoreError> {
        if self.private.content().unfinished_since.is_none() {
            return Ok(());
        }
        spool::note_whole(&mut self.private, &self.digest, self.size, origin)
    }

    /// Leaves it for a later pull, if it was noted as whole. It is deleted otherwise.
    pub fn leave(self) {
        if self.private.note().is_some() {
            spool::leave_spool(self.private);
        }
    }
}

/// The layer blobs that a manifest names. One that cannot be read names none.
pub(crate) fn named_by(manifest: &[u8], media_type: &str) -> Vec<Digest> {
    let Ok(Document::Manifest(Manifest { layers, .. })) = Document::parse(manifest, Some(media_type)) else {
        return Vec::new();
    };
    let mut digests: Vec<Digest> = layers.into_iter().map(|layer| layer.digest).collect();
    digests.sort_unstable();
    digests.dedup();
    digests
}

/// Blobs of a commit that are being linked into `blobs/`. Those that no record names in the end are removed again.
pub(crate) struct Linked<'a> {
    content: &'a Content,
    blobs: Vec<(u64, &'a NewBlob)>,
    /// Those that the transaction took.
    taken: Vec<u64>,
    /// Numbers of files that were missing or cut off, and that were replaced by one of these.
    replaced: Vec<u64>,
}

impl<'a> Linked<'a> {
    /// Gives the blobs their names under `blobs/`. The sync of the commit makes them durable.
    pub(crate) fn new(content: &'a Content, blobs: Vec<&'a NewBlob>, next: &mut u64) -> Result<Self, StoreError> {
        let mut linked = Self { content, blobs: Vec::new(), taken: Vec::new(), replaced: Vec::new() };
        for blob in blobs {
            let number = *next;
            *next += 1;
            linked.link(blob, number)?;
        }
        Ok(linked)
    }

    fn link(&mut self, blob: &'a NewBlob, number: u64) -> Result<(), StoreError> {
        let layout = &self.content.catalog.disk.layout;
        let failed = |error: Errno| StoreError::io("keep a blob as", layout.blob_path(number), error);
        let name = format!("{BLOBS}/{number}");
        let link = || {
            let from = blob.private.name();
            rustix::fs::linkat(&layout.ingest, from.as_str(), &layout.root, name.as_str(), AtFlags::empty())
        };
        match link() {
            Err(Errno::NOENT) => {
                match rustix::fs::mkdirat(&layout.root, BLOBS, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(failed(error)),
                }
                link().map_err(failed)?;
            }
            linked => linked.map_err(failed)?,
        }
        self.blobs.push((number, blob));
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blobs.is_empty()
    }

    /// Returns the bytes of a blob on the disk, when it is written: before that, a file that is synced in the middle has many
    /// pieces, and an additional block that lists them, which is freed when they have been merged.
    fn bytes_on_disk(&self, number: u64, blob: &NewBlob) -> u64 {
        let name = format!("{BLOBS}/{number}");
        let look =
            || rustix::fs::statat(&self.content.catalog.disk.layout.root, name.as_str(), AtFlags::SYMLINK_NOFOLLOW);
        // The blob has just been given that name. If it cannot be inspected all the same, its previous size is the best guess.
        bytes_on_disk(look).unwrap_or(blob.disk_bytes)
    }

    /// Within the transaction: gives the image the kept blobs that its manifest names, both those that are present and those of
    /// this commit.
    pub(crate) fn give(
        &mut self,
        transaction: &WriteTransaction,
        image: &mut ImageEntry,
        named: &[Digest],
    ) -> Result<(), StoreError> {
        let mut totals = transaction.totals()?;
        for digest in named {
            let before = transaction.blob(digest)?;
            let new = self.blobs.iter().find(|(_, blob)| blob.digest == *digest);
            let is_here = before.as_ref().is_some_and(|entry| new.is_none() || self.content.has_blob(entry));
            let mut entry = match (before, new) {
                (Some(before), _) if is_here => before,
                (before, Some(&(number, blob))) => {
                    let references = before.as_ref().map_or(0, |entry| entry.references);
                    let entry = BlobEntry {
                        number,
                        size: blob.size,
                        disk_bytes: self.bytes_on_disk(number, blob),
                        references,
                        unsynced_boot: self.content.catalog.unsynced_boot(),
                    };
                    if let Some(before) = &before {
                        resize_images(transaction, digest, before.disk_bytes, entry.disk_bytes)?;
                        totals.drop_blob(before);
                        self.replaced.push(before.number);
                    }
                    totals.add_blob(&entry);
                    self.taken.push(number);
                    entry
                }
                _ => continue,
            };
            entry.references += 1;
            transaction.put_blob(digest, &entry)?;
            image.blobs.insert(digest.clone());
        }
        transaction.put_totals(&totals)
    }

    /// After the transaction: deletes the blobs that it did not take, and those that it released.
    pub(crate) fn settle(mut self, released: &[BlobEntry]) {
        let taken = std::mem::take(&mut self.taken);
        self.blobs.retain(|(number, _)| !taken.contains(number));
        let left = self.replaced.iter().copied().chain(released.iter().map(|entry| entry.number));
        if let Err(error) = self.content.delete_blobs(left) {
            tracing::warn!(%error, "blobs that no image has any more stay for a while");
        }
    }

    /// Has all of them stay, for the records may name them.
    pub(crate) fn leave(&mut self) {
        self.blobs.clear();
    }
}

impl Drop for Linked<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.content.delete_blobs(self.blobs.iter().map(|(number, _)| *number)) {
            tracing::warn!(%error, "blobs that no image took stay for a while");
        }
    }
}

/// Changes the sizes of the images that have a blob whose file is another one now.
fn resize_images(transaction: &WriteTransaction, digest: &Digest, before: u64, after: u64) -> Result<(), StoreError> {
    for (id, mut image) in transaction.images()? {
        if image.blobs.contains(digest) {
            image.size = (image.size + after).saturating_sub(before);
            transaction.put_image(&id, &image)?;
        }
    }
    Ok(())
}

impl Content {
    /// Returns true if a blob's file is present and has the expected length.
    pub(crate) fn has_blob(&self, entry: &BlobEntry) -> bool {
        rustix::fs::statat(
            &self.catalog.disk.layout.root,
            format!("{BLOBS}/{}", entry.number),
            AtFlags::SYMLINK_NOFOLLOW,
        )
        .is_ok_and(|stat| u64::try_from(stat.st_size) == Ok(entry.size))
    }

    pub(crate) fn open_blob(&self, number: u64) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(rustix::fs::openat(&self.catalog.disk.layout.root, format!("{BLOBS}/{number}"), flags, Mode::empty())?
            .into())
    }

    /// Deletes the files of blobs. Continues after a failure and reports the first one. Needs no space.
    pub(crate) fn delete_blobs(&self, numbers: impl IntoIterator<Item = u64>) -> Result<(), StoreError> {
        let mut first = Ok(());
        for number in numbers {
            match rustix::fs::unlinkat(&self.catalog.disk.layout.root, format!("{BLOBS}/{number}"), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => {
                    self.catalog.disk.note_untidy();
                    let error = StoreError::io("delete", self.catalog.disk.layout.blob_path(number), error);
                    first = first.and(Err(error));
                }
            }
        }
        first
    }

    /// Deletes the files under `blobs/` that are not to be kept. Returns the greatest number that was present.
    pub(crate) fn sweep_blobs(&self, keep: impl Fn(u64) -> bool) -> Result<u64, StoreError> {
        let mut greatest = 0;
        let mut stray: Vec<CString> = Vec::new();
        for name in self.blob_names()? {
            let number = crate::disk::layout::number(&name);
            greatest = greatest.max(number.unwrap_or(0));
            if !number.is_some_and(&keep) {
                stray.push(crate::disk::layout::c_name(name));
            }
        }
        if stray.is_empty() {
            return Ok(greatest);
        }
        tracing::info!(count = stray.len(), "sweeping blobs that no record names");
        let path = || self.catalog.disk.layout.path.join(BLOBS);
        let swept = crate::disk::layout::open_directory(&self.catalog.disk.layout.root, BLOBS)
            .and_then(|directory| crate::disk::remove_tree::remove_trees(std::os::fd::AsFd::as_fd(&directory), &stray));
        if let Err(error) = swept {
            tracing::warn!(%error, path = %path().display(), "not everything could be swept");
        }
        Ok(greatest)
    }

    /// The names under `blobs/`, which is made with the first one.
    pub(crate) fn blob_names(&self) -> Result<Vec<std::ffi::OsString>, StoreError> {
        let path = self.catalog.disk.layout.path.join(BLOBS);
        match crate::disk::layout::names(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            names => names.map_err(|source| StoreError::io("list", &path, source)),
        }
    }
}
