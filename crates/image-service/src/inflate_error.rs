//! [`InflateError`]: the reasons why a blob cannot be verified or inflated. Found by the first thread of [`crate::unpack`], made an error of
//! the image service by [`crate::error`].

use crate::intake::{self, IntakeError};

/// The fault that the first side found.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InflateError {
    /// The blob is not what was promised.
    #[error(transparent)]
    Intake(#[from] IntakeError),
    /// The stream is damaged, or nobody can read it here.
    #[error(transparent)]
    Stream(inflate::Error),
    /// Far more comes out than goes in.
    #[error(
        "the limit of uncompressed bytes of a layer with {compressed} bytes is {limit}, and there are {seen} up to here"
    )]
    Bomb {
        /// Bytes of the blob.
        compressed: u64,
        /// Most bytes that may come of them.
        limit: u64,
        /// Bytes that came, at least.
        seen: u64,
    },
    /// The second side stopped; its own result says why.
    #[error("the layer was given up")]
    UnpackStopped,
}

impl From<inflate::Error> for InflateError {
    fn from(error: inflate::Error) -> Self {
        match error {
            inflate::Error::Source(source) => match intake::from_io(&source) {
                Some(error) => Self::Intake(error),
                None => Self::Stream(inflate::Error::Source(source)),
            },
            inflate::Error::Stopped(_) => Self::UnpackStopped,
            other => Self::Stream(other),
        }
    }
}
