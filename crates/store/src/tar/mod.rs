//! A streaming reader of tar archives, for what stands in image layers: ustar, GNU and PAX.
//!
//! It turns bytes into [`Entry`] values and data, and hands every byte that is no file data on as it came, so that a
//! recipe can be kept. It touches no file, decides nothing about paths, and allocates nothing because a header says so:
//! every record is held against [`Limits`]. [`crate::unpack`] calls it.

mod limits;

pub use limits::Limits;
