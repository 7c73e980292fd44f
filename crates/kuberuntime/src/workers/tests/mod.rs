//! The sync loop on the runtime in memory, under a clock that jumps to whatever is waited for.

mod chaos;
mod cluster;
mod events;
mod evicted;
mod faults;
mod life;
mod ports;
mod takeover;
mod world;
