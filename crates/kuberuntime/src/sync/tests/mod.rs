//! The hands on the runtime in memory: orders, events, faults at each call, ends.

pub(crate) mod bench;
mod ends;
mod faults;
mod looks;
mod pulls;
mod random;
mod starts;
