//! The content of an upload: a blob whose bytes the caller provides from the start for each attempt, or a document; and
//! the wait for the answer, which lasts as long as bytes are sent. Called by the `transport`; [`crate::upload`] makes
//! them.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use http::HeaderValue;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, SizeHint};
use oci::Descriptor;

use crate::http_client::{self, RequestBody};

/// How long a registry may take to check an upload, in addition to the usual wait.
const CHECKING: Duration = Duration::from_secs(300);

/// The bytes of a blob, in order.
pub type UploadStream = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// Opens the bytes of a blob from the start.
type OpenBlob = Arc<dyn Fn() -> UploadStream + Send + Sync>;

/// A blob to upload.
#[derive(Clone)]
pub struct BlobUpload {
    /// Digest and size.
    pub descriptor: Descriptor,
    /// Opens its bytes from the start, once for each attempt.
    pub open: OpenBlob,
}

impl fmt::Debug for BlobUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobUpload").field("descriptor", &self.descriptor).finish_non_exhaustive()
    }
}

/// Content of a request.
pub(crate) struct Upload {
    pub(crate) media_type: HeaderValue,
    content: BodyContent,
    /// Bytes that were sent.
    sent: Arc<AtomicU64>,
}

enum BodyContent {
    Whole(Bytes),
    Blob { size: u64, open: OpenBlob },
}

impl Upload {
    pub(crate) fn of_blob(blob: &BlobUpload) -> Self {
        let media_type = HeaderValue::from_static("application/octet-stream");
        Self {
            media_type,
            content: BodyContent::Blob { size: blob.descriptor.size, open: Arc::clone(&blob.open) },
            sent: Arc::default(),
        }
    }

    pub(crate) fn of_document(media_type: HeaderValue, bytes: Bytes) -> Self {
        Self { media_type, content: BodyContent::Whole(bytes), sent: Arc::default() }
    }

    /// The bytes, from the start.
    pub(crate) fn body(&self) -> RequestBody {
        match &self.content {
            BodyContent::Whole(bytes) => http_client::whole(bytes.clone()),
            BodyContent::Blob { size, open } => {
                let body = BlobBody { stream: open(), left: *size, sent: Arc::clone(&self.sent) };
                body.boxed_unsync()
            }
        }
    }
}

/// Waits for an answer: without an upload for the idle timeout, with one while bytes are sent, and for the registry's check of them.
/// Returns `None` if no answer arrived.
pub(crate) async fn watched<T>(answer: impl Future<Output = T>, upload: Option<&Upload>, wait: Duration) -> Option<T> {
    let Some(upload) = upload else { return tokio::time::timeout(wait, answer).await.ok() };
    let mut answer = std::pin::pin!(answer);
    let mut before = None;
    loop {
        if let Ok(answer) = tokio::time::timeout(wait + CHECKING, answer.as_mut()).await {
            return Some(answer);
        }
        let sent = upload.sent.load(Ordering::Relaxed);
        if before.replace(sent) == Some(sent) {
            return None;
        }
    }
}

/// A body of known length, whose bytes are counted.
struct BlobBody {
    stream: UploadStream,
    left: u64,
    sent: Arc<AtomicU64>,
}

impl Body for BlobBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let polled = self.stream.as_mut().poll_next(cx);
        let Poll::Ready(next) = polled else { return Poll::Pending };
        let length = match &next {
            Some(Ok(bytes)) => bytes.len() as u64,
            Some(Err(_)) | None => 0,
        };
        let Some(left) = self.left.checked_sub(length) else {
            return Poll::Ready(Some(Err(io::Error::other("the blob is longer than its descriptor says"))));
        };
        self.left = left;
        self.sent.fetch_add(length, Ordering::Relaxed);
        match next {
            None if left > 0 => {
                Poll::Ready(Some(Err(io::Error::other("the blob is shorter than its descriptor says"))))
            }
            next => Poll::Ready(next.map(|bytes| bytes.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
