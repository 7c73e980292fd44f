//! The transfer of a blob: [`BlobStream`] returns its bytes, [`schedule`] decides over how many connections they are fetched.

mod schedule;
mod stream;

pub use stream::BlobStream;
