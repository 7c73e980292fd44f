//! The recipe of a layer: the data that is needed, besides the files in `fs/` or in the EROFS file, to rebuild the original tar
//! stream.
//!
//! Knows nothing of tar beyond "these bytes raw, those bytes from that file". The unpacker writes it, the export of a layer reads
//! it.
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

mod erofs;
mod error;
mod rebuild;
mod writer;

pub(crate) use erofs::{check_erofs, open_erofs, read_erofs};
pub use error::RecipeError;
pub use rebuild::rebuild;
pub(crate) use rebuild::{examine, inodes};
pub(crate) use writer::Writer;

/// Name of the file next to `fs/`.
pub(crate) const FILE: &str = "recipe.zst";
/// Name of the directory next to `fs/` for files that later entries of the same layer have replaced.
pub(crate) const REPLACED: &str = "replaced";

/// Bytes copied at a time.
pub(crate) const BUFFER: usize = 256 << 10;

const MAGIC: &[u8] = b"imagelet recipe 1\n";
const RAW: u8 = b'r';
const DATA: u8 = b'd';
const INODE: u8 = b'i';
const MOVED: u8 = b'm';
const END: u8 = b'e';

#[cfg(test)]
#[path = "recipe_tests.rs"]
mod tests;
