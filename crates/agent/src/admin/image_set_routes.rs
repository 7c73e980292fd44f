//! The route of the image sets that this node follows: `GET /v1/image-sets`. Decides nothing. Called by axum.

use axum::http::StatusCode;
use axum::routing::get;
use cri_api::Kind;

use super::image_sets::ImageSetList;
use super::state::{Answer, Refusal, SharedState, json};
use super::table::{Content, Route, schema};

/// The routes.
pub(super) const ROUTES: &[Route] = &[Route::get(
    "/image-sets",
    "The image sets that select this node, with the state of each image; 404 if the agent follows none",
    Content::Json(schema::<ImageSetList>),
    || get(list),
)];

async fn list(state: SharedState) -> Answer {
    let none = "this agent follows no image sets: set fleet.kubeconfig, or fleet.inCluster in a pod";
    let sets = state.image_sets.as_ref().ok_or_else(|| Refusal::new(Kind::NotFound, none))?;
    let unknown = || {
        let line = "the image sets of this node are not known yet: the API server has not answered";
        Refusal::new(Kind::Unavailable, line).with_status(StatusCode::TOO_EARLY)
    };
    json(&sets().ok_or_else(unknown)?)
}
