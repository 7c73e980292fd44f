//! [`Spool`]: the bytes of a blob as they arrive, from some offset on without a gap, in a file, with the digest of each piece in
//! another one. A later pull reads it back piece by piece, up to the first piece that does not match its digest, and continues
//! from there. The image service decides whether a spool is worth keeping. A whole blob that is to be kept ([`crate::NewBlob`])
//! is left as a spool as well, without the digests of its pieces: its reader can verify it by the digest of the whole blob.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use oci::{Algorithm, Digest};
use rustix::fs::{Mode, OFlags};

use crate::content::Content;
use crate::content::left::{self, LeftKind, NEW, SPOOL, SpoolHead, note_name};
use crate::content::private::Private;
use crate::disk::layout;
use crate::error::StoreError;

/// No piece is longer, and a longer one in the file is not accepted.
const LONGEST: usize = 4 << 20;
/// Bytes of a piece in which a whole blob is read back.
const PIECE: u64 = 256 << 10;

/// A part of a blob, owned by this value alone. It is deleted with the value, unless it is left.
#[derive(Debug)]
pub struct Spool {
    private: Private,
    data: File,
    sums: File,
    blob: Digest,
    size: u64,
    begin: u64,
    end: u64,
    /// The content from before that was not read back yet.
    back: Option<SpoolReader<BufReader<File>>>,
}

/// Lines that were there before.
#[derive(Debug)]
pub(crate) struct SpoolReader<L> {
    lines: L,
    /// Where the good ones end.
    good: u64,
    /// The spool has no digests of pieces, since the whole blob is present.
    whole: bool,
}

impl Spool {
    /// Begins a spool with byte `begin` of a blob that is fetched from `origin`.
    ///
    /// # Errors
    /// The spool's files could not be created.
    pub(crate) fn create(
        content: &Arc<Content>,
        blob: &Digest,
        size: u64,
        begin: u64,
        origin: &str,
    ) -> Result<Self, StoreError> {
        let mut private = content.private();
        let ingest = &content.catalog.disk.layout.ingest;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let create = |name: &str| rustix::fs::openat(ingest, name, flags, Mode::RUSR | Mode::WUSR).map(File::from);
        let data = create(&private.name()).map_err(|error| private.failed("create", error.into()))?;
        let sums = create(&note_name(private.number, SPOOL));
        let mut sums = sums.map_err(|error| private.failed("create the digests of", error.into()))?;
        private.set_note(SPOOL);
        let line = SpoolHead { blob: blob.clone(), size, begin, whole: false, origin: origin.to_owned() }.line();
        sums.write_all(&line).map_err(|error| private.failed("write the digests of", error))?;
        Ok(Self { private, data, sums, blob: blob.clone(), size, begin, end: begin, back: None })
    }

    /// Takes the part of this blob that an interrupted pull left, if `may` accepts its origin.
    ///
    /// # Errors
    /// The files cannot be opened. They are deleted then.
    pub(crate) fn take_left(
        content: &Arc<Content>,
        blob: &Digest,
        size: u64,
        may: &dyn Fn(&str) -> bool,
    ) -> Result<Option<Self>, StoreError> {
        let fits = |what: &LeftKind| match what {
            LeftKind::Spool { blob: of, size: long, origin } if of == blob && *long == size && may(origin) => Some(()),
            _ => None,
        };
        let Some((private, ())) = content.take_left(fits) else { return Ok(None) };
        Self::again(private).map(Some)
    }

    fn again(private: Private) -> Result<Self, StoreError> {
        let open = |name: &str| {
            let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            Ok::<_, io::Error>(File::from(rustix::fs::openat(
                &private.content().catalog.disk.layout.ingest,
                name,
                flags,
                Mode::empty(),
            )?))
        };
        let opened = || {
            let (data, sums) = (open(&private.name())?, open(&note_name(private.number, SPOOL))?);
            let (head, back) = SpoolReader::begin(BufReader::new(sums.try_clone()?))?;
            Ok((data, sums, head, back))
        };
        let (data, sums, SpoolHead { blob, size, begin, .. }, back) =
            opened().map_err(|error| private.failed("go on with", error))?;
        Ok(Self { private, data, sums, blob, size, begin, end: begin, back: Some(back) })
    }

    /// The first byte of the blob that is in it.
    #[must_use]
    pub fn begin(&self) -> u64 {
        self.begin
    }

    /// The byte after the last one that was read back or written.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns the next piece of the earlier content, or `None` after the last good one; new bytes are written after that.
    ///
    /// # Errors
    /// The damaged rest could not be cut off; or the whole blob should be present, and is not. Nothing may be appended then.
    pub fn read_back(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(back) = &mut self.back else { return Ok(None) };
        match back.piece(&self.data, self.end, self.size) {
            Ok(Some(piece)) => {
                self.end += piece.len() as u64;
                return Ok(Some(piece));
            }
            Ok(None) => {}
            // A digest for each piece is what could say how far it is good.
            Err(error) if back.whole => return Err(self.private.failed("read", error)),
            Err(error) => {
                tracing::info!(blob = %self.blob, at = self.end, %error, "the rest of what a pull left is no good");
            }
        }
        let good = back.good;
        self.back = None;
        let cut = || {
            self.data.set_len(self.end)?;
            self.sums.set_len(good)?;
            (&self.sums).seek(SeekFrom::Start(good))
        };
        cut().map_err(|error| self.private.failed("cut off", error))?;
        Ok(None)
    }

    /// Appends the bytes that follow, as one piece. To be called when everything was read back.
    ///
    /// # Errors
    /// The disk refused it. The spool is as good as before.
    pub fn append<'a>(&mut self, parts: impl IntoIterator<Item = &'a [u8]>) -> Result<(), StoreError> {
        let failed = |operation| {
            let private = &self.private;
            move |error: io::Error| private.failed(operation, error)
        };
        let mut hasher = Algorithm::Sha256.hasher();
        let mut at = self.end;
        for part in parts {
            self.data.write_all_at(part, at).map_err(failed("write"))?;
            hasher.update(part);
            at += part.len() as u64;
        }
        if at > self.end {
            // A line is valid only if it is complete.
            let line = format!("{} {}\n", at - self.end, hasher.finish().hex());
            (&self.sums).write_all(line.as_bytes()).map_err(failed("write the digests of"))?;
            self.end = at;
        }
        Ok(())
    }

    /// Leaves it for a later pull, if there is anything in it.
    pub fn leave(self) {
        let Self { private, end, begin, back, .. } = self;
        if end == begin && back.is_none() {
            return;
        }
        leave_spool(private);
    }
}

/// Records next to a private file that it is the whole of this blob, and that its bytes were verified.
pub(crate) fn note_whole(private: &mut Private, blob: &Digest, size: u64, origin: &str) -> Result<(), StoreError> {
    let head = SpoolHead { blob: blob.clone(), size, begin: 0, whole: true, origin: origin.to_owned() };
    let (name, new) = (note_name(private.number, SPOOL), note_name(private.number, NEW));
    let ingest = &private.content().catalog.disk.layout.ingest;
    layout::write_whole(ingest, &name, &new, &head.line())
        .map_err(|error| private.failed("write the digests of", error))?;
    private.set_note(SPOOL);
    Ok(())
}

/// Leaves a blob, or the part of it that was fetched, for a later pull.
pub(crate) fn leave_spool(private: Private) {
    let content = private.content();
    match left::find_spool(&content.catalog.disk.layout.path.join(layout::INGEST), private.number) {
        Ok(left) => content.leave(private, left),
        Err(error) => tracing::debug!(%error, "a blob could not be left"),
    }
}

impl<L: BufRead> SpoolReader<L> {
    /// Reads the first line.
    pub(crate) fn begin(mut lines: L) -> io::Result<(SpoolHead, Self)> {
        let (head, good) = left::spool_head(&mut lines)?;
        let whole = head.whole;
        Ok((head, Self { lines, good, whole }))
    }

    /// The next piece, which begins at `at`.
    pub(crate) fn piece(&mut self, data: &File, at: u64, size: u64) -> io::Result<Option<Vec<u8>>> {
        if self.whole {
            let length = size.saturating_sub(at).min(PIECE);
            let mut piece = vec![0; usize::try_from(length).expect("no more than a piece")];
            data.read_exact_at(&mut piece, at)?;
            return Ok((!piece.is_empty()).then_some(piece));
        }
        let line = left::line(&mut self.lines)?;
        let Some(line) = line else { return Ok(None) };
        let bad = || io::Error::new(io::ErrorKind::InvalidData, "a line of digests that is none");
        let (length, digest) = line.split_once(' ').ok_or_else(bad)?;
        let length: usize = length.parse().map_err(|_| bad())?;
        if length == 0 || length > LONGEST || length as u64 > size.saturating_sub(at) {
            return Err(bad());
        }
        let mut piece = vec![0; length];
        data.read_exact_at(&mut piece, at)?;
        if Digest::sha256(&piece).hex() != digest {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a piece with another digest"));
        }
        self.good += line.len() as u64 + 1;
        Ok(Some(piece))
    }
}
