//! What keeps disk and records together: leases, the removal of layers that nobody needs, and the sweep.

pub(crate) mod lease;
pub(crate) mod strays;
pub(crate) mod sweep;
