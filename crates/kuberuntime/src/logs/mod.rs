//! The logs of containers: rotated while their containers run ([`LogRotator`]), and read for users ([`LogReader`]). A
//! log has lines of CRI's format, which a runtime writes; a rotated log is next to it, `0.log.20260101-000000`, and
//! the older ones are compressed. This module writes no other files, and follows no link in a pod's directory.

mod files;
mod line;
mod reader;
mod rotate;
mod tail;

pub use files::LogLocation;
pub(crate) use line::LogLine;
pub use reader::{LogOptions, LogReader, LogStep};
pub use rotate::{LogRotationOptions, LogRotator, RotationReport};
