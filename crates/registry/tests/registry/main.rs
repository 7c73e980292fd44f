//! The client against the test registry, by topic: every behaviour and every fault.

extern crate imagelet_registry as registry;

mod auth;
mod bandwidth;
mod blobs;
mod documents;
mod hostile;
mod mirrors;
mod presence;
mod proxy;
mod push;
mod ranges;
mod real;
mod redirects;
mod scheme;
mod schemes;
mod secrets;
mod shared_layers;
mod stalls;
mod support;
mod tags;
mod tls;
mod upload;
mod wire;
