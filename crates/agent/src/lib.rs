//! The node agent: what `imagelet serve` and `imagelet run` are as long-running processes, and what others ask of them. The admin
//! socket with both of its ends, the status page, garbage collection of images and containers, and the parts of a node that runs pods. Knows no
//! command line, configuration, exit code or table: it is handed the options of the crates below, and errors that callers can act
//! on. Called by the binary.
#![deny(missing_docs)]

pub mod admin;
pub mod age;
pub mod collection;
pub mod ensure;
pub mod node;
pub mod page;
pub mod pods;
