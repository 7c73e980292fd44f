//! The route `/v1/ensure`: the images of a manifest's pods, through the image manager. No rules of its own. Called by axum.

use axum::body::Bytes;
use axum::routing::post;
use cri_api::Kind;
use manifest::SecretStore;
use schemars::JsonSchema;
use serde::Serialize;

use super::state::{Answer, Refusal, SharedState, bad_request, json};
use super::table::{Content, Route, schema};
use crate::ensure::{EnsuredRow, ImageNeed, image_needs};

/// Response of `POST /v1/ensure`, as written by `imagelet ensure -o json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct EnsuredImages {
    pub(super) containers: Vec<EnsuredRow>,
}

/// The routes.
pub(super) const ROUTES: &[Route] = &[
    Route::change(
        "/ensure",
        "Ensures that the images of pods are present, as `imagelet ensure` does. The body is a manifest in YAML or JSON with pods and \
         their secrets. The status is 200 even if an image failed: see `result`",
        Content::Json(schema::<EnsuredImages>),
        || post(ensure),
    )
    .with_body(Content::Bytes("application/yaml")),
];

async fn ensure(state: SharedState, body: Bytes) -> Answer {
    let none = || Refusal::new(Kind::Unimplemented, "this process decides about no pods' images: `imagelet run` does");
    let manager = state.manager.as_ref().ok_or_else(none)?;
    let text = String::from_utf8(body.into()).map_err(|_| bad_request("the manifest is no UTF-8 text"))?;
    let directory = state.secrets_directory.clone();
    let read = tokio::task::spawn_blocking(move || needs(&text, directory.as_deref())).await;
    let needs = read.map_err(|_| Refusal::new(Kind::Internal, "read the manifest: the reader panicked"))??;
    let requests: Vec<_> = needs.iter().map(ImageNeed::request).collect();
    let ends = futures::future::join_all(requests.iter().map(|request| manager.ensure_image_exists(request)));
    let ends = tokio::select! {
        ends = ends => ends,
        () = state.stop.cancelled() => return Err(Refusal::ends()),
    };
    let containers = needs.iter().zip(ends).map(|(need, end)| EnsuredRow::new(need, Some(end))).collect();
    json(&EnsuredImages { containers })
}

/// The needs of a manifest. Blocks for as long as the secrets directory takes.
fn needs(text: &str, secrets: Option<&std::path::Path>) -> Result<Vec<ImageNeed>, Refusal> {
    let mut objects = manifest::parse("the manifest", text).map_err(|error| bad_request(error.to_string()))?;
    manifest::check(&objects, None).map_err(|error| bad_request(error.to_string()))?;
    let pods = std::mem::take(&mut objects.pods);
    let mut store = SecretStore::default();
    store.add(objects);
    if let Some(directory) = secrets {
        match manifest::read_directory(directory) {
            Ok(read) => store.add(read.objects),
            Err(error) => tracing::warn!(%error, "secrets are left out"),
        }
    }
    Ok(pods.into_iter().flat_map(|pod| image_needs(pod, &store)).collect())
}
