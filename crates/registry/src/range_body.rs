//! [`RangeBody`]: the answer to a request for a stretch of a blob, and the futures in which one is opened and read.
//! `range_request` makes it, `part` and `spare` read it.

use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use url::Url;

use crate::error::Cause;
use crate::http_client::HttpResponse;
use crate::transport::next_chunk;

/// An answer that brings bytes.
pub(crate) struct RangeBody {
    pub(crate) response: HttpResponse,
    /// Bytes that come and are there already.
    pub(crate) skip: u64,
    /// End in the blob of the bytes that it brings.
    pub(crate) until: u64,
    /// How long the answer took to begin.
    pub(crate) after: Duration,
    /// The URL that answered, if that is at another origin.
    pub(crate) target: Option<Url>,
    /// True if the host does ranges.
    pub(crate) ranges: bool,
}

pub(crate) type ReadFuture = BoxFuture<'static, (HttpResponse, Result<Option<Bytes>, Cause>)>;
pub(crate) type OpenFuture = BoxFuture<'static, Result<RangeBody, Cause>>;

pub(crate) fn read(mut response: HttpResponse, idle: Duration) -> ReadFuture {
    async move {
        let came = next_chunk(&mut response, idle).await;
        (response, came)
    }
    .boxed()
}
