//! A streaming reader of tar archives, for the formats that occur in image layers: v7, ustar, star, GNU and PAX.
//!
//! Turns bytes into entries and data, and passes on unchanged every byte that is no file data, so that a recipe can be kept.
//! Touches no file, decides nothing about paths, and never allocates a size that only a header states: every record is checked
//! against [`Limits`]. Where readers in the wild disagree about the meaning of an archive, it follows Go's `archive/tar`, with
//! which containerd, docker and podman unpack, or refuses the archive. [`crate::unpack`] calls it.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod differential;
mod entry;
mod error;
mod header;
mod input;
mod limits;
mod member;
mod pax;
mod reader;
mod sparse;

pub(crate) use entry::{Entry, Kind, Piece, Time};
pub use error::{PrintableName, TarError};
pub(crate) use error::{shown, shown_xattr};
pub use limits::Limits;
pub(crate) use reader::Reader;

#[cfg(test)]
pub(crate) mod build;
#[cfg(test)]
mod odd_tests;
#[cfg(test)]
mod reader_tests;
