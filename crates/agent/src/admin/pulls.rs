//! Pulls over the API: the bodies of answers and events. Plain data. Called by the routes of pulls and by clients.

use image_manager::{EndedPull, PullInFlight};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The answer to `GET /v1/pulls`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pulls {
    /// The pulls that run or wait, in the order in which they were first wanted.
    pub pulls: Vec<PullInFlight>,
    /// The last pulls that ended, oldest first; in an event, those that ended since the event before.
    pub ended: Vec<EndedPull>,
    /// Ends that a reader missed because it was too slow or away for too long.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missed: u64,
}

/// The last event of a stream that the agent ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StreamEnd {
    /// Why, one line.
    pub reason: String,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
