//! [`PageState`]: the part of the page that its routes share, and the form of a refusal. Used by [`super::routes`] and [`super::live`].

use std::sync::Arc;

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::report::Reporter;

/// The number of live pages at the same time. Further readers keep the page as it was when they loaded it.
const READERS: usize = 32;

/// The state of the routes.
pub(super) struct PageState {
    pub(super) reporter: Arc<Reporter>,
    pub(super) stop: CancellationToken,
    readers: Arc<Semaphore>,
}

impl PageState {
    pub(super) fn new(reporter: Arc<Reporter>, stop: CancellationToken) -> Self {
        Self { reporter, stop, readers: Arc::new(Semaphore::new(READERS)) }
    }

    /// Reserves a place for a live page, until it is dropped. Returns `None` if all are taken.
    pub(super) fn seat(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.readers).try_acquire_owned().ok()
    }
}

/// Returns a response with a refusal in one line.
pub(super) fn refusal(status: StatusCode, line: &str) -> Response {
    (status, [(CONTENT_TYPE, "text/plain; charset=utf-8")], format!("{line}\n")).into_response()
}
