//! The recipe of a layer: what is needed, besides the files in `fs/`, to write the very tar stream that came in.
//!
//! It knows nothing of tar beyond "these bytes raw, those bytes from that file". The unpacker writes it, the export
//! of a layer reads it.

use std::io::{self, Write};
use std::os::fd::BorrowedFd;

/// Why a tar stream could not be rebuilt.
#[derive(Debug, thiserror::Error)]
pub enum RecipeError {
    /// The output failed.
    #[error("writing the layer")]
    Write(#[source] io::Error),
    /// The layer has no recipe.
    #[error("the layer has no recipe")]
    Missing,
}

/// Writes the tar stream that `layer_dir` (with `fs/` and `recipe.zst`) was unpacked from, bit for bit.
///
/// # Errors
/// See [`RecipeError`].
pub fn rebuild(layer_dir: BorrowedFd<'_>, out: &mut dyn Write) -> Result<(), RecipeError> {
    let _ = (layer_dir, out);
    Err(RecipeError::Missing)
}
