//! Invariants of [`AuthorityFilter`] for any input: the parts in which it arrives make no difference, its memory is bounded, and a
//! second filter behind it changes nothing. Called by `fuzz` of this crate.

use super::{AuthorityFilter, MAX_BLOCK, MAX_READY, PREFACE};

/// The first byte is the length of parts; the rest are the frames of a client.
pub(crate) fn authority(bytes: &[u8]) {
    let Some((&part, frames)) = bytes.split_first() else { return };
    let input: Vec<u8> = std::iter::repeat_n(b'x', PREFACE).chain(frames.iter().copied()).collect();
    let whole = filtered(&input, input.len());
    assert_eq!(whole, filtered(&input, usize::from(part).max(1)), "parts make a difference");
    assert_eq!(whole, filtered(&whole, whole.len().max(1)), "a second filter makes a difference");
}

/// The output for an input that arrives in parts of the given length.
pub(super) fn filtered(input: &[u8], part: usize) -> Vec<u8> {
    let mut filter = AuthorityFilter::new();
    let mut output = Vec::new();
    for mut rest in input.chunks(part) {
        while !rest.is_empty() {
            let count = filter.read(rest);
            rest = &rest[count..];
            assert!(filter.ready().len() <= MAX_READY + MAX_BLOCK.max(part), "too much output waits");
            assert!(filter.payload.len() + filter.block.as_ref().map_or(0, |block| block.bytes.len()) <= 2 * MAX_BLOCK);
            output.extend_from_slice(filter.ready());
            filter.take(filter.ready().len());
        }
    }
    output
}
