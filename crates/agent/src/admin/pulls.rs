//! Pulls over the API: the bodies of answers and events. Plain data. Called by the routes of pulls and by clients.

use image_manager::{EndedPull, PullInFlight};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Response of `GET /v1/pulls`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pulls {
    /// Running and queued pulls, in the order of their first request.
    pub pulls: Vec<PullInFlight>,
    /// Recently finished pulls, oldest first; in an event stream, the pulls that finished since the previous event.
    pub ended: Vec<EndedPull>,
    /// Number of finished pulls that are no longer available to a reader that was too slow or disconnected for too long.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missed: u64,
}

/// Final event of a stream that the agent closes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StreamEnd {
    /// Reason in one line.
    pub reason: String,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
