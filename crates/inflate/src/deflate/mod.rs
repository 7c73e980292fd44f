//! Deflate (RFC 1951), decoded from any block on. Two things set it apart from the backends for whole streams: it knows the bit
//! that it stands at and can be stopped after any symbol and go on elsewhere; and it decodes what nobody has the window for
//! into [`Steps`], which whoever has it carries out in a fraction of the time. It knows nothing of gzip, and does
//! nothing by itself. Called by `gzip`.
//!
//! It wants some bytes behind what it is to decode: whoever has the end of the stream appends [`PADDING`] zeros.
#![expect(
    clippy::cast_possible_truncation,
    reason = "bits are cut out of wider words all over, each after a mask or shift"
)]

mod bits;
mod block;
mod codes;
mod out;
mod search;
mod steps;
mod tables;

pub(crate) use block::{At, Decoder, Stop, Wrong};
pub(crate) use out::Plain;
pub(crate) use search::search;
pub(crate) use steps::{Done, Steps};

/// How far back a match can reach.
pub(crate) const WINDOW: usize = 32 * 1024;
/// Bytes behind the end of the stream with which everything before them is decoded.
pub(crate) const PADDING: usize = 512;
/// Room with which there is always progress: what a match and the literals before it take, and what copies in whole chunks
/// write behind it.
pub(crate) const MARGIN: usize = 1024;
