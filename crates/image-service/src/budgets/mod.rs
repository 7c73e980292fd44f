//! [`Budgets`]: the limits that all pulls of an engine share: memory, disk space, layers in parallel, entries and bytes of
//! images; connections and bandwidth are limited within the registry client. Knows neither jobs nor content.

mod memory;
mod space;

use registry::Client;

pub(crate) use memory::{MemoryBudget, PullAccount, Share};
pub(crate) use space::{InsufficientSpace, SpaceClaim, SpaceRequirement, SpaceReservations};

use crate::options::{EngineOptions, Limits};

/// The limits that all pulls of an engine share.
pub(crate) struct Budgets {
    /// Memory of the layers in flight.
    pub(crate) memory: MemoryBudget,
    /// Disk space that layers in flight still need.
    pub(crate) space: SpaceReservations,
    /// Limits of one image.
    pub(crate) limits: Limits,
    /// Layers of one image that are fetched in parallel.
    pub(crate) parallel_layers: usize,
    /// Registry client, which limits connections and bandwidth, and takes optional memory from the budget.
    pub(crate) client: Client,
}

impl Budgets {
    /// Makes the budgets of an engine, whose `client` takes optional memory from `memory`.
    pub(crate) fn new(options: &EngineOptions, memory: MemoryBudget, client: Client) -> Self {
        Self {
            memory,
            space: SpaceReservations::new(options.keep_blobs),
            limits: options.limits.clone(),
            parallel_layers: options.max_parallel_layers,
            client,
        }
    }
}
