//! Images of many nodes: the objects with which images are declared and reported, the rules of their rollout, and the controller.
//! Pulls nothing by itself. The binary starts the controller; the daemon of a node shares the objects and the rules.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use imagelet_fleet::api::ImageSetSpec;
//! use imagelet_fleet::selection::selects;
//!
//! # fn main() -> Result<(), serde_json::Error> {
//! let set: ImageSetSpec = serde_json::from_str(
//!     r#"{"images": [{"name": "registry.example/web:2.1"}], "nodeSelector": {"matchLabels": {"role": "web"}}}"#,
//! )?;
//! let labels = |role: &str| BTreeMap::from([("role".to_owned(), role.to_owned())]);
//! assert!(selects(&set, "node-1", &labels("web")) && !selects(&set, "node-2", &labels("database")));
//! # Ok(()) }
//! ```
#![deny(missing_docs)]

pub mod api;
pub mod conditions;
pub mod console;
pub mod controller;
pub mod manifests;
#[cfg(test)]
mod metric_page;
pub mod node;
pub mod release;
pub mod rollout;
pub mod selection;
pub mod summary;
pub mod taint;
