//! The node agent: the long-running part of `imagelet serve` and `imagelet run`, and its clients. The admin socket with both of its
//! ends, the status page, garbage collection of images and containers, and the parts of a node that runs pods. Independent of the
//! command line, configuration, exit codes and tables: it takes the options of the crates below, and returns errors that callers
//! can act on. Called by the binary.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use imagelet_agent::api::client::{AskError, Method, ask_json};
//! use imagelet_agent::node::board::NodeInfo;
//!
//! # async fn example() -> Result<(), AskError> {
//! let socket = Path::new("/run/imagelet/admin.sock");
//! let node: NodeInfo = ask_json(socket, Method::GET, "/v1/node").await?;
//! println!("{}", node.runtime_endpoint);
//! # Ok(()) }
//! ```
#![deny(missing_docs)]

pub mod admin;
pub mod age;
pub mod api;
pub mod collection;
pub mod ensure;
pub mod node;
pub mod page;
pub mod pods;
