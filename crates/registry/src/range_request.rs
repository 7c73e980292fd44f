//! [`RangeRequest`]: one request for a stretch of a blob, or all of it, and the judgement of its answer: the right
//! range, the whole, or a refusal. Where the host redirected to another origin before, that one is asked directly, and
//! the host again where it refuses. `blob` makes it and decides what follows; `part` and `spare` read the [`RangeBody`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, RANGE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use oci::Digest;
use tokio::time::Instant;
use url::Url;

use crate::error::Cause;
use crate::http_client::HttpResponse;
use crate::redact;
use crate::session::{ApiPath, PullSession};
use crate::transport::{RegistryAnswer, next_chunk};

/// An answer that delivers bytes.
pub(crate) struct RangeBody {
    pub(crate) response: HttpResponse,
    /// Bytes of the response that are present already.
    pub(crate) skip: u64,
    /// End in the blob of the bytes that it delivers.
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

/// A request for a stretch of a blob, or for all of it.
pub(crate) struct RangeRequest {
    pub(crate) session: Arc<PullSession>,
    pub(crate) host: usize,
    pub(crate) digest: Digest,
    /// Of the whole blob.
    pub(crate) size: u64,
    /// The first byte to ask for.
    pub(crate) from: u64,
    /// The byte after the last one to ask for, or none for all the rest.
    pub(crate) end: Option<u64>,
    /// The first byte that is missing: bytes before it are skipped.
    pub(crate) need: u64,
    /// True if an answer with the whole blob is accepted.
    pub(crate) whole_will_do: bool,
    /// The URL at another origin to which the host redirected before.
    pub(crate) target: Option<Url>,
}

impl RangeRequest {
    pub(crate) async fn send(self) -> Result<RangeBody, Cause> {
        let Self { session, host, digest, size, from, end, need, whole_will_do, target } = self;
        let mut headers = HeaderMap::new();
        if from > 0 || end.is_some() {
            let text = end.map_or_else(|| format!("bytes={from}-"), |end| format!("bytes={from}-{}", end - 1));
            headers.insert(RANGE, HeaderValue::try_from(text).expect("digits are a header value"));
        }
        let start = Instant::now();
        let mut answer = None;
        if let Some(target) = target {
            let again = session.request_at(host, &target, headers.clone()).await?;
            // A signed address that is over is no error: the registry is asked for another one.
            answer = Some(again).filter(|again| !matches!(again.status().as_u16(), 400 | 401 | 403 | 404 | 410));
        }
        let mut answer = match answer {
            Some(answer) => answer,
            None => {
                let name = digest.to_string();
                session.request(host, &ApiPath { method: Method::GET, what: "blobs", name: &name }, headers).await?
            }
        };
        let (start_at, until, ranges) = match answer.status() {
            StatusCode::OK if !whole_will_do => {
                return Err(Cause::Range("a range was asked for and the whole came".into()));
            }
            StatusCode::OK => {
                check_length(&answer, size)?;
                let accepts = answer.response.headers().get(ACCEPT_RANGES);
                let ranges = accepts.is_some_and(|a| a.as_bytes().eq_ignore_ascii_case(b"bytes"));
                // A range was requested and the host ignored it, whatever its headers announce.
                (0, size, ranges && from == 0 && end.is_none())
            }
            StatusCode::PARTIAL_CONTENT => {
                let until = check_range(&answer, from, size).map_err(Cause::Range)?;
                (from, until, true)
            }
            StatusCode::RANGE_NOT_SATISFIABLE if from > 0 || end.is_some() => {
                return Err(Cause::Range(format!("range from byte {from} was refused")));
            }
            _ => return Err(answer.into_cause().await),
        };
        let target = if answer.left_origin { answer.places.pop() } else { None };
        let after = start.elapsed();
        Ok(RangeBody { response: answer.response, skip: need - start_at, until, after, target, ranges })
    }
}

/// The length that the answer announces must be the descriptor's.
fn check_length(answer: &RegistryAnswer, size: u64) -> Result<(), Cause> {
    let Some(length) = answer.response.headers().get(CONTENT_LENGTH) else { return Ok(()) };
    let length = length.to_str().ok().and_then(|t| t.trim().parse::<u64>().ok());
    if length == Some(size) {
        return Ok(());
    }
    let what = match (length, answer.content_type()) {
        (Some(n), t) if t.is_empty() => format!("{n} bytes"),
        (Some(n), t) => format!("{n} bytes of {}", redact::text(&t, 60)),
        (None, _) => "a length that is no number".into(),
    };
    Err(Cause::Content(format!("the response has {what}, the descriptor {size} bytes")))
}

/// A partial answer must begin at the byte that was asked for and belong to a whole of the right size. Answers where it
/// ends.
fn check_range(answer: &RegistryAnswer, from: u64, size: u64) -> Result<u64, String> {
    let value = answer.response.headers().get(CONTENT_RANGE);
    let text = value.map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned()).unwrap_or_default();
    range_fits(&text, from, size)
        .ok_or_else(|| format!("wrong range: asked from byte {from} of {size}, got {:?}", redact::text(&text, 60)))
}

/// The byte after a range that fits.
pub(crate) fn range_fits(text: &str, from: u64, size: u64) -> Option<u64> {
    let (range, total) = text.trim().strip_prefix("bytes ")?.trim().split_once('/')?;
    let (start, end) = range.split_once('-')?;
    let (start, end) = (start.trim().parse::<u64>().ok()?, end.trim().parse::<u64>().ok()?);
    let total_fits = total.trim() == "*" || total.trim().parse() == Ok(size);
    (start == from && end >= start && end < size && total_fits).then(|| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let cases = [
            ("bytes 5-9/10", Some(10)),
            ("bytes 5-7/10", Some(8)),
            ("bytes 5-9/*", Some(10)),
            ("bytes 4-9/10", None),
            ("bytes 5-10/10", None),
            ("bytes 5-9/11", None),
            ("bytes 5-4/10", None),
            ("bytes */10", None),
            ("5-9/10", None),
            ("bytes 5-99999999999999999999/10", None),
            ("bytes 5-18446744073709551615/10", None),
            ("", None),
        ];
        for (text, want) in cases {
            assert_eq!(range_fits(text, 5, 10), want, "{text:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn valid_range_is_within_the_blob(text in r"(bytes|[ */-]|[0-9]{1,21}){0,8}", from in 0u64..20, size in 0u64..20) {
            if let Some(until) = range_fits(&text, from, size) {
                proptest::prop_assert!(from < until && until <= size);
            }
        }
    }
}
