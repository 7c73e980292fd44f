//! A streaming reader of tar archives, for what stands in image layers: v7, ustar, star, GNU and PAX.
//!
//! It turns bytes into entries and data, and hands every byte that is no file data on as it came, so that a
//! recipe can be kept. It touches no file, decides nothing about paths, and allocates nothing because a header says so:
//! every record is held against [`Limits`]. Where readers in the wild disagree about the meaning of an archive, it
//! follows Go's `archive/tar`, which is what containerd, docker and podman unpack with, or refuses the archive.
//! [`crate::unpack`] calls it.

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
