//! The recipe of a layer: what is needed, besides the files in `fs/` or in the EROFS image, to write the very tar stream that came in.
//!
//! It knows nothing of tar beyond "these bytes raw, those bytes from that file". The unpacker writes it, the export
//! of a layer reads it.
//!
//! `recipe.zst` is a zstd stream: a line that names the version, then records, each a tag and numbers as LEB128:
//!
//! | tag | then | meaning |
//! |---|---|---|
//! | `r` | length, bytes | these bytes |
//! | `d` | length, path, offset, length | that part of the file at this path of `fs/` |
//! | `i` | number, offset, length | that part of the file with this inode number in the image |
//! | `m` | length, path, number | from here on the path is another one; what it was is `replaced/<number>` now |
//! | `e` | length | the end, and how long the stream is |

mod image;
mod rebuild;
mod writer;

use std::io;

pub(crate) use image::{check_image, device_name, open_devices, open_file as open_image, read_image};
pub use rebuild::rebuild;
pub(crate) use rebuild::{examine, inodes};
pub(crate) use writer::Writer;

/// Name of the file beside `fs/`.
pub(crate) const FILE: &str = "recipe.zst";
/// Name of the directory beside `fs/` for what later entries of the same layer have replaced.
pub(crate) const REPLACED: &str = "replaced";

/// Bytes copied at a time.
pub(crate) const BUFFER: usize = 256 << 10;

const MAGIC: &[u8] = b"imagelet recipe 1\n";
const RAW: u8 = b'r';
const DATA: u8 = b'd';
const INODE: u8 = b'i';
const MOVED: u8 = b'm';
const END: u8 = b'e';

/// Why a tar stream could not be rebuilt.
#[derive(Debug, thiserror::Error)]
pub enum RecipeError {
    /// The output failed.
    #[error("writing the layer")]
    Write(#[source] io::Error),
    /// The layer has no recipe.
    #[error("the layer has no recipe")]
    Missing,
    /// The recipe, or a file that it needs, is not what it was.
    #[error("the layer is damaged: {what}")]
    Damaged {
        /// What is wrong.
        what: String,
    },
    /// A system call failed.
    #[error("reading {path:?} of the layer")]
    Read {
        /// The recipe, or a file below `fs/`.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl RecipeError {
    /// Whether it is the layer that is damaged, and not the system that lacks something.
    pub(crate) fn is_of_the_medium(&self) -> bool {
        match self {
            Self::Missing | Self::Damaged { .. } => true,
            Self::Read { source, .. } => crate::io_error::is_of_the_medium(source),
            Self::Write(_) => false,
        }
    }
}

#[cfg(test)]
#[path = "recipe_tests.rs"]
mod tests;
