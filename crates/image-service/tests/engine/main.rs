//! The engine against a registry in the same process, on real directories: one integration binary by topic.

extern crate imagelet_image_service as image_service;

mod cancelling;
mod checking;
mod conformance;
mod destinations;
mod digests;
mod filling;
mod filling_rules;
mod hostile;
mod index;
mod keeping;
mod memory;
mod power_cut;
mod presence;
mod pulling;
mod refusals;
mod resuming;
mod secrets;
mod sharing;
mod signatures;
mod space;
mod support;
mod tenants;
mod transfers;

testdisk::serve!();
