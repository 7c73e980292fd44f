//! EROFS files as an enemy makes them: [`mutate`] spoils one, [`exercise`] does everything to it that the reader can, and answers how
//! much was read for that. Panics where the reader contradicts itself. For tests and for `examples/fuzz.rs`.

use std::cell::Cell;
use std::collections::HashSet;
use std::io;

use crate::format::{BLOCK, superblock};
use crate::{InodeInfo, Kind, ReadError, Reader, Source};

/// Directories and entries of them that one exercise looks at: what is behind them is like what is before.
const MOST: usize = 2000;
/// Numbers that programs get wrong.
const NUMBERS: [u64; 12] =
    [0, 1, 11, 12, 4095, 4096, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 0x7fff_ffff_ffff_ffff, 0xffff_ffff_ffff_ffff];

/// A source that counts.
struct Counted<'a> {
    bytes: &'a [u8],
    read: Cell<u64>,
}

impl Source for Counted<'_> {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.bytes.read_at(offset, buffer)?;
        self.read.set(self.read.get() + length as u64);
        Ok(length)
    }

    fn size(&self) -> io::Result<u64> {
        self.bytes.size()
    }
}

/// The result of an exercise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExerciseReport {
    /// True if the EROFS file was taken for a good one.
    pub good: bool,
    /// Bytes that the check has read.
    pub by_check: u64,
    /// Inodes that were read in addition to those of the check.
    pub inodes: u64,
}

/// A parser with what it has to keep, by its name.
pub type Harness = (&'static str, fn(&[u8]));

/// The promises of the reader, for libFuzzer (`fuzz/` at the top of the repository).
pub const HARNESSES: &[Harness] = &[("erofs", fuzzed)];

fn fuzzed(bytes: &[u8]) {
    let _ = exercise(bytes);
    // No chance finds the sum of the superblock.
    let mut image = bytes.to_vec();
    if let Some(block) = image.first_chunk_mut::<BLOCK>() {
        superblock::seal(block);
        let _ = exercise(&image);
    }
}

/// Opens an EROFS file, checks it, and reads everything in it that can be read, within bounds of its own.
///
/// # Panics
/// Where the reader contradicts itself.
#[must_use]
pub fn exercise(bytes: &[u8]) -> ExerciseReport {
    let source = Counted { bytes, read: Cell::new(0) };
    let mut exercised = ExerciseReport::default();
    let image = match Reader::open(&source) {
        Ok(image) => image,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return exercised;
        }
    };
    source.read.set(0);
    exercised.good = image.check().is_ok();
    exercised.by_check = source.read.get();
    let walked = walk(&image, &mut exercised.inodes);
    assert!(!exercised.good || walked.is_ok(), "what is checked can be read: {walked:?}");
    exercised
}

/// Reads every inode that can be reached. Goes on behind an error, and answers the first one.
fn walk<R: Source>(image: &Reader<R>, inodes: &mut u64) -> Result<(), ReadError> {
    let mut first = Ok(());
    let mut note = |error: ReadError| {
        if first.is_ok() {
            first = Err(error);
        }
    };
    let (mut left, mut seen) = (vec![image.root()], HashSet::from([image.root()]));
    let mut buffer = vec![0; 2 * BLOCK + 1];
    while let Some(nid) = left.pop() {
        *inodes += 1;
        let info = match image.inode(nid) {
            Ok(info) => info,
            Err(error) => {
                note(error);
                continue;
            }
        };
        if let Err(error) = image.xattrs(&info) {
            note(error);
        }
        match info.kind {
            Kind::Directory => {
                let names = match image.entries(&info) {
                    Ok(entries) => entries,
                    Err(error) => {
                        note(error);
                        continue;
                    }
                };
                let (mut before, mut whole): (Option<Vec<u8>>, bool) = (None, true);
                for entry in names.take(MOST) {
                    let entry = match entry {
                        Ok(entry) => entry,
                        Err(error) => {
                            note(error);
                            whole = false;
                            break;
                        }
                    };
                    assert!(before.as_ref().is_none_or(|before| *before < entry.name), "names come in order");
                    assert!(!entry.name.contains(&b'/') && !entry.name.contains(&0) && !entry.name.is_empty());
                    if seen.len() < MOST && seen.insert(entry.nid) {
                        left.push(entry.nid);
                    }
                    before = Some(entry.name);
                }
                lookup_all(image, &info, whole);
            }
            Kind::Symlink => {
                if let Err(error) = image.link_target(&info) {
                    note(error);
                }
            }
            _ => {
                for offset in [0, 1, info.size / 2, info.size.saturating_sub(1), info.size, u64::MAX] {
                    match image.read(&info, offset, &mut buffer) {
                        Ok(length) => {
                            let want = info.size.saturating_sub(offset).min(buffer.len() as u64);
                            assert_eq!(length as u64, want, "as much as there is");
                        }
                        Err(error) => note(error),
                    }
                    let hole = image.hole(&info, offset.min(info.size));
                    assert!(hole.map_or(true, |end| end <= info.size.max(offset)));
                }
            }
        }
    }
    first
}

/// Looks up every name that a directory lists. A binary search finds each where all names stand in order; behind damage it may end
/// elsewhere, but it ends.
fn lookup_all<R: Source>(image: &Reader<R>, directory: &InodeInfo, whole: bool) {
    let Ok(names) = image.entries(directory) else { return };
    let names: Vec<_> = names.take(MOST).map_while(Result::ok).collect();
    for entry in &names {
        let found = image.lookup(directory, &entry.name);
        if whole && names.len() < MOST {
            assert_eq!(found.as_ref().ok(), Some(&Some(entry.clone())), "a name that is listed is found");
        }
    }
}

/// Spoils an EROFS file, by numbers that `random` gives; mostly with a checksum that fits, so that it is read further.
pub fn mutate(image: &mut Vec<u8>, random: &mut dyn FnMut() -> u64) {
    let mut below = |most: usize| usize::try_from(random() % most.max(1) as u64).unwrap_or(0);
    for _ in 0..=below(6) {
        if image.len() < BLOCK {
            break;
        }
        let length = image.len();
        let at = place(image, &mut below);
        match below(10) {
            0 => image[at] ^= 1 << below(8),
            1 => image[at] = u8::try_from(below(256)).unwrap_or(0),
            2..=5 => {
                let (width, number) = ([2, 4, 8][below(3)], NUMBERS[below(NUMBERS.len())]);
                let end = (at + width).min(length);
                image[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
            }
            6 | 7 => {
                // A number a little off.
                let by = u8::try_from(below(64)).unwrap_or(0);
                image[at] = image[at].wrapping_add(by).wrapping_sub(32);
            }
            8 => {
                let (from, count) = (place(image, &mut below), below(64) + 1);
                let count = count.min(length - from).min(length - at);
                image.copy_within(from..from + count, at);
            }
            _ if below(8) == 0 => image.truncate(below(length)),
            _ => {
                let end = (at + below(4096)).min(length);
                image[at..end].fill(0);
            }
        }
    }
    if image.len() >= BLOCK && below(8) > 0 {
        let block: &mut [u8; BLOCK] = (&mut image[..BLOCK]).try_into().expect("a block");
        superblock::seal(block);
    }
}

/// A byte that is likely to mean something: EROFS files are mostly zeros and content.
fn place(image: &[u8], below: &mut dyn FnMut(usize) -> usize) -> usize {
    let length = image.len();
    match below(8) {
        0 => superblock::OFFSET + below(superblock::LENGTH),
        1 | 2 => below(BLOCK),
        3 => below(length),
        _ => {
            let from = below(length);
            let near = image[from..].iter().take(BLOCK).position(|byte| *byte != 0);
            near.map_or(from, |near| from + near) & !1
        }
    }
}

/// Numbers from a seed, always the same ones.
pub fn numbers(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        // The finisher of SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = state;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
#[test]
fn corpora_are_replayed() {
    replay::replay(HARNESSES);
}
