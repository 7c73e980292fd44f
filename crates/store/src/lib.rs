//! Placeholder.

mod recipe;
mod tar;
mod unpack;

pub use unpack::{Limits, UnpackError};
