//! A blob on its way: [`BlobStream`] hands out its bytes, [`schedule`] decides over how many connections they come.

mod schedule;
mod stream;

pub use stream::BlobStream;
