//! Extended attributes: those behind an inode, and those that it shares with others.

use std::ops::Range;

use super::{InodeInfo, ReadError, Reader};
use crate::Source;
use crate::format::inode::RawInode;
use crate::format::xattr::{self, AREA_HEADER, HEADER, RawXattr};
use crate::format::{BLOCK_BITS, u32_at};

/// The bit of a prefix's number that says that the EROFS file has the prefix itself.
const OWN_PREFIX: u8 = 0x80;

/// An extended attribute: its full name, and its value.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// Visits an attribute: the area that may contain its value, its name, and the location of its value.
type XattrVisitor<'a> = dyn FnMut(&[u8], Vec<u8>, XattrValue) -> Result<(), ReadError> + 'a;

/// Where a value is.
enum XattrValue {
    /// In the area.
    Inline(Range<usize>),
    /// In the EROFS file.
    Shared(u64, usize),
}

impl<R: Source> Reader<R> {
    /// An inode's extended attributes by their full names, as they stand there.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn xattrs(&self, inode: &InodeInfo) -> Result<Vec<Xattr>, ReadError> {
        let mut found = Vec::new();
        self.each(inode, &mut |_| true, &mut |area, name, value| {
            found.push((name, self.value(area, value)?));
            Ok(())
        })?;
        Ok(found)
    }

    /// The value of one extended attribute.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn xattr(&self, inode: &InodeInfo, wanted: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        let mut found = None;
        self.each(inode, &mut |_| true, &mut |area, name, value| {
            if found.is_none() && name == wanted {
                found = Some(self.value(area, value)?);
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Looks at all of an inode's attributes, of the shared ones at those that `is_new` says yes to. Values are not read.
    pub(super) fn examine_xattrs(
        &self,
        inode: &InodeInfo,
        is_new: &mut dyn FnMut(u32) -> bool,
    ) -> Result<(), ReadError> {
        self.each(inode, is_new, &mut |_, _, _| Ok(()))
    }

    /// Tells each attribute with the area that its value may be in.
    fn each(
        &self,
        inode: &InodeInfo,
        wanted: &mut dyn FnMut(u32) -> bool,
        visit: &mut XattrVisitor<'_>,
    ) -> Result<(), ReadError> {
        let damaged = |what: &str| ReadError::damaged(format!("inode {}: {what}", inode.nid.0));
        let length = xattr::area(inode.raw.xattr_count);
        if length == 0 {
            return Ok(());
        }
        let place = self.place(inode.nid).ok_or_else(|| damaged("it is of another image"))?;
        // Held against the end when the inode was read; 256 KiB at most.
        let mut area = vec![0; length];
        self.exactly(place + RawInode::len(inode.raw.extended) as u64, &mut area)?;
        let shared = usize::from(area[4]);
        let mut at = AREA_HEADER + 4 * shared;
        if at > area.len() {
            return Err(damaged("its shared extended attributes end beyond their area"));
        }
        for index in 0..shared {
            let number = u32_at(&area, AREA_HEADER + 4 * index);
            if wanted(number) {
                let (name, value) = self.shared(inode, number)?;
                visit(&area, name, value)?;
            }
        }
        while at < area.len() {
            let raw = RawXattr::decode(area[at..at + HEADER].try_into().expect("areas are of whole headers"));
            if raw == RawXattr::decode([0; HEADER]) {
                // Room that is left.
                at += HEADER;
                continue;
            }
            let name = at + HEADER..at + HEADER + usize::from(raw.name_len);
            let value = name.end..name.end + usize::from(raw.value_len);
            if value.end > area.len() {
                return Err(damaged("an extended attribute ends beyond its area"));
            }
            let full = full_name(inode, raw, &area[name])?;
            at += raw.len();
            visit(&area, full, XattrValue::Inline(value))?;
        }
        Ok(())
    }

    /// Name and place of a shared attribute.
    fn shared(&self, inode: &InodeInfo, number: u32) -> Result<(Vec<u8>, XattrValue), ReadError> {
        let begin = (u64::from(self.superblock.xattr_block) << BLOCK_BITS) + 4 * u64::from(number);
        let mut header = [0; HEADER];
        self.exactly(begin, &mut header)?;
        let raw = RawXattr::decode(header);
        let mut name = vec![0; usize::from(raw.name_len)];
        self.exactly(begin + HEADER as u64, &mut name)?;
        let value = begin + (HEADER + name.len()) as u64;
        if value + u64::from(raw.value_len) > self.size {
            return Err(ReadError::damaged(format!(
                "inode {}: a shared extended attribute ends beyond the end",
                inode.nid.0
            )));
        }
        Ok((full_name(inode, raw, &name)?, XattrValue::Shared(value, usize::from(raw.value_len))))
    }

    fn value(&self, area: &[u8], value: XattrValue) -> Result<Vec<u8>, ReadError> {
        match value {
            XattrValue::Inline(range) => Ok(area[range].to_vec()),
            XattrValue::Shared(at, length) => {
                let mut bytes = vec![0; length];
                self.exactly(at, &mut bytes)?;
                Ok(bytes)
            }
        }
    }
}

fn full_name(inode: &InodeInfo, raw: RawXattr, name: &[u8]) -> Result<Vec<u8>, ReadError> {
    let damaged = |what: &str| ReadError::damaged(format!("inode {}: {what}", inode.nid.0));
    if raw.index & OWN_PREFIX != 0 {
        let nid = inode.nid.0;
        return Err(ReadError::unsupported(format!("prefixes of attribute names of its own (inode {nid})")));
    }
    let prefix = xattr::prefix(raw.index).ok_or_else(|| damaged("an extended attribute has no prefix"))?;
    if name.is_empty() != xattr::is_whole(raw.index) || name.contains(&0) {
        return Err(damaged("an extended attribute has a name that is none"));
    }
    Ok([prefix, name].concat())
}
