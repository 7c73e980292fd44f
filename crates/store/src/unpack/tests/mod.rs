//! Tests of the unpacker on real directories. They need root (owners, devices) and say so by failing without.

mod rules;
pub(crate) mod support;
