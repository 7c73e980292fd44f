//! Extended attributes of inodes: [`Xattrs`] makes the area that stands behind an inode. An attribute that some inode before has
//! as well is not written again: it is shared with that one. Long ones get a place of their own, and are shared in any case.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use super::error::WriteError;
use super::output::Output;
use crate::Sink;
use crate::format::xattr::{AREA_HEADER, AREA_MAX, Attribute, SHARED_MAX, encode_area, shared_id};

/// Beyond so many bytes behind an inode, the longest attributes get a place of their own.
const ROOM: usize = 1024;
/// Attributes that are remembered.
const KNOWN: usize = 8192;

/// The shared attributes so far, and the area of the inode at hand.
#[derive(Default)]
pub(super) struct Xattrs {
    /// By a keyed hash of 128 bits, where an attribute stands, in units of four bytes.
    known: HashMap<u128, u32>,
    keys: (RandomState, RandomState),
    area: Vec<u8>,
    /// The attributes in the area itself, by hash.
    news: Vec<(u128, usize)>,
}

/// An attribute and its hash.
#[derive(Clone, Copy)]
struct HashedAttribute<'a> {
    attribute: Attribute<'a>,
    key: u128,
}

impl Xattrs {
    /// Makes the area for an inode that has these; an empty one for none. For directories, whose place is known late, all
    /// attributes that can be are shared. Answers its length: [`Self::area`] has it.
    pub(super) fn plan<S: Sink>(
        &mut self,
        xattrs: &[(Vec<u8>, Vec<u8>)],
        directory: bool,
        output: &mut Output<S>,
    ) -> Result<usize, WriteError> {
        self.area.clear();
        self.news.clear();
        if xattrs.is_empty() {
            return Ok(0);
        }
        let mut own = xattrs.iter().map(|(name, value)| self.one(name, value)).collect::<Result<Vec<_>, _>>()?;
        own.sort_by_key(|one| (one.attribute.head.index, one.attribute.name));
        if own.windows(2).any(|two| two[0].attribute.is_named_as(&two[1].attribute)) {
            return Err(WriteError::Misused("an extended attribute came twice"));
        }
        let mut shared = Vec::new();
        own.retain(|one| match self.known.get(&one.key) {
            Some(id) if shared.len() < SHARED_MAX => {
                shared.push(*id);
                false
            }
            _ => true,
        });
        own.sort_by_key(|one| one.attribute.len());
        let room = if directory { 0 } else { ROOM };
        let mut length: usize = own.iter().map(|one| one.attribute.len()).sum();
        while length + 4 * shared.len() > room && shared.len() < SHARED_MAX {
            // The longest first.
            let Some(one) = own.pop() else { break };
            let Some(id) = self.write_separately(&one, output)? else {
                own.push(one);
                break;
            };
            length -= one.attribute.len();
            shared.push(id);
        }
        if AREA_HEADER + 4 * shared.len() + length > AREA_MAX {
            return Err(WriteError::Beyond { what: "so many extended attributes of one inode".to_owned() });
        }
        encode_area(&shared, &mut self.area);
        for one in &own {
            self.news.push((one.key, self.area.len()));
            one.attribute.encode(&mut self.area);
        }
        Ok(self.area.len())
    }

    /// The area that was planned.
    pub(super) fn area(&self) -> &[u8] {
        &self.area
    }

    /// Records the offset of the planned area, whose attributes can be shared from then on.
    pub(super) fn area_written_at(&mut self, at: u64) {
        for (key, offset) in std::mem::take(&mut self.news) {
            if let Some(id) = shared_id(at + offset as u64) {
                self.remember(key, id);
            }
        }
    }

    fn remember(&mut self, key: u128, id: u32) {
        if self.known.len() < KNOWN {
            self.known.insert(key, id);
        }
    }

    /// Writes an attribute outside of the area; `None` if its offset does not fit.
    fn write_separately<S: Sink>(
        &mut self,
        one: &HashedAttribute<'_>,
        output: &mut Output<S>,
    ) -> Result<Option<u32>, WriteError> {
        if shared_id(output.layout().end()).is_none() {
            return Ok(None);
        }
        let at = output.place(one.attribute.len() as u64)?;
        let mut bytes = Vec::with_capacity(one.attribute.len());
        one.attribute.encode(&mut bytes);
        output.put(at, &bytes)?;
        let id = shared_id(at).expect("before the end");
        self.remember(one.key, id);
        Ok(Some(id))
    }

    fn one<'a>(&self, name: &'a [u8], value: &'a [u8]) -> Result<HashedAttribute<'a>, WriteError> {
        let attribute = Attribute::new(name, value).ok_or_else(|| WriteError::attribute(name, value))?;
        let half = |state: &RandomState| {
            let mut hasher = state.build_hasher();
            hasher.write(&attribute.head.encode());
            hasher.write(attribute.name);
            hasher.write(value);
            u128::from(hasher.finish())
        };
        Ok(HashedAttribute { attribute, key: half(&self.keys.0) << 64 | half(&self.keys.1) })
    }
}
