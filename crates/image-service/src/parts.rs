//! [`EngineParts`]: the parts of an engine that its calls and pulls work with. Each part has one owner of its state:
//! [`Content`], [`InFlight`] and [`Budgets`]; code that needs one of them takes that one. [`crate::engine`] makes them.

use std::sync::Arc;

use crate::budgets::Budgets;
use crate::content::Content;
use crate::destination::Destination;
use crate::in_flight::InFlight;
use crate::options::EngineOptions;
use crate::signatures::ImagePolicy;

/// The parts of an engine.
pub(crate) struct EngineParts {
    /// The images and layers that are present.
    pub(crate) content: Arc<Content>,
    /// The work that callers share while it runs.
    pub(crate) in_flight: InFlight,
    /// The limits that all pulls share.
    pub(crate) budgets: Budgets,
    /// The signature policy.
    pub(crate) policy: ImagePolicy,
    pub(crate) options: EngineOptions,
    /// Where images go.
    pub(crate) destination: Arc<dyn Destination>,
}
