//! Tests of the unpacker on real directories. They need root (owners, devices) and say so by failing without.

mod attack;
mod attributes;
mod differential;
mod implicit;
mod plain_user;
mod property;
mod rules;
pub(crate) mod support;
