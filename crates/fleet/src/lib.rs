//! Images of many nodes: the objects with which images are declared and reported, the rules of their rollout, and the controller.
//! Pulls nothing by itself. The binary starts the controller; the daemon of a node shares the objects and the rules.
#![deny(missing_docs)]

pub mod api;
pub mod conditions;
pub mod controller;
pub mod manifests;
pub mod node;
pub mod release;
pub mod rollout;
pub mod selection;
pub mod summary;
pub mod taint;
