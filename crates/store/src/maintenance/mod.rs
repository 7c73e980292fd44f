//! The order between disk and records: leases, the removal of layers that nobody needs, and the sweep.

pub(crate) mod lease;
pub(crate) mod lease_table;
pub(crate) mod part;
pub(crate) mod strays;
pub(crate) mod sweep;
pub(crate) mod sweep_at_open;
