//! Presence of a blob at a registry, for the credential of this session: requested by HEAD, and if that answer is inconclusive
//! (a storage that a registry redirects to may support only GET), by a GET of the first byte. Nothing else of the blob
//! is read. Called through [`crate::Repository::has_blob`].

use http::header::{CONTENT_LENGTH, CONTENT_RANGE, RANGE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use oci::Descriptor;

use crate::error::Cause;
use crate::session::{ApiPath, PullSession};
use crate::transport::RegistryAnswer;

impl PullSession {
    /// Asks one host. An error of the host is a no.
    pub(crate) async fn has_blob_at(&self, host: usize, descriptor: &Descriptor) -> bool {
        let name = descriptor.digest.to_string();
        let path = ApiPath { method: Method::HEAD, what: "blobs", name: &name };
        // A kept connection may have ended without a word: that is asked once more.
        let mut asked = self.request(host, &path, HeaderMap::new()).await;
        if asked.as_ref().is_err_and(Cause::is_transient) {
            asked = self.request(host, &path, HeaderMap::new()).await;
        }
        let Ok(answer) = asked else { return false };
        if answer.status() == StatusCode::OK {
            return length(&answer).is_none_or(|length| length == descriptor.size);
        }
        let is_inconclusive = answer.left_origin || matches!(answer.status().as_u16(), 405 | 501);
        if !is_inconclusive || descriptor.size == 0 {
            return false;
        }
        let path = ApiPath { method: Method::GET, ..path };
        let headers = HeaderMap::from_iter([(RANGE, HeaderValue::from_static("bytes=0-0"))]);
        let Ok(answer) = self.request(host, &path, headers).await else { return false };
        match answer.status() {
            StatusCode::PARTIAL_CONTENT => total(&answer) == Some(descriptor.size),
            StatusCode::OK => length(&answer).is_none_or(|length| length == descriptor.size),
            _ => false,
        }
    }
}

/// `Content-Length`.
fn length(answer: &RegistryAnswer) -> Option<u64> {
    answer.response.headers().get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The length of the whole in `Content-Range: bytes 0-0/LENGTH`.
fn total(answer: &RegistryAnswer) -> Option<u64> {
    let range = answer.response.headers().get(CONTENT_RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes 0-0/")?.parse().ok()
}
