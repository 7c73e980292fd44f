//! [`BlobStream`]: the bytes of one blob, in order, started again by `Range` where the transfer broke off, at the next
//! host where one gives up. It counts bytes against the descriptor and hashes nothing: that is for the caller, who has
//! a thread for it.

use std::fmt;
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, RANGE};
use http::{HeaderMap, HeaderValue, StatusCode};
use oci::{Descriptor, Digest};

use crate::attempts::Attempts;
use crate::error::{Cause, Failure, RegistryError};
use crate::redact;
use crate::session::{Path, Session};
use crate::transport::{Answer, Method, next_chunk};

/// This much since the last failure counts as progress, which makes the retry budget whole again.
const PROGRESS: u64 = 64 << 10;

/// A blob on its way.
pub struct BlobStream {
    session: Arc<Session>,
    digest: Digest,
    size: u64,
    asked: String,
    attempts: Attempts,
    body: Option<Body>,
    /// Bytes handed out.
    offset: u64,
    /// Bytes handed out since the last failure.
    since_failure: u64,
    /// This host's answers to ranges are wrong: ask it for all and skip.
    no_ranges: Option<usize>,
    finished: bool,
}

struct Body {
    response: reqwest::Response,
    /// Bytes that come and are there already.
    skip: u64,
}

impl BlobStream {
    pub(crate) async fn open(
        session: Arc<Session>,
        descriptor: &Descriptor,
        asked: String,
    ) -> Result<Self, RegistryError> {
        let order = session.order(false);
        if order.is_empty() {
            return Err(session.nobody(&asked, false));
        }
        let mut stream = Self {
            session,
            digest: descriptor.digest.clone(),
            size: descriptor.size,
            asked,
            attempts: Attempts::new(order),
            body: None,
            offset: 0,
            since_failure: 0,
            no_ranges: None,
            finished: false,
        };
        while stream.body.is_none() {
            stream.reopen().await?;
        }
        Ok(stream)
    }

    /// Size of the blob, as its descriptor gives it.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The host that the bytes come from at present.
    #[must_use]
    pub fn host(&self) -> &str {
        self.session.host_name(self.attempts.host())
    }

    /// The next piece, or `None` after exactly [`size`](Self::size) bytes.
    ///
    /// # Errors
    /// [`RegistryError`], when every host has used up its attempts, or when more bytes come than there should be.
    pub async fn next(&mut self) -> Result<Option<Bytes>, RegistryError> {
        let idle = self.session.idle_timeout();
        while !self.finished {
            let Some(body) = &mut self.body else {
                self.reopen().await?;
                continue;
            };
            let cause = match next_chunk(&mut body.response, idle).await {
                Ok(Some(mut chunk)) => {
                    let skip = body.skip.min(chunk.len() as u64);
                    body.skip -= skip;
                    chunk.advance(usize::try_from(skip).expect("no more than the chunk's length"));
                    if chunk.is_empty() {
                        continue;
                    }
                    let came = chunk.len() as u64;
                    if came > self.size - self.offset {
                        return Err(self.too_long());
                    }
                    self.offset += came;
                    self.since_failure += came;
                    return Ok(Some(chunk));
                }
                // All is here; how the connection ends is of no interest.
                Ok(None) | Err(_) if self.offset == self.size => {
                    self.finished = true;
                    self.body = None;
                    break;
                }
                Ok(None) => Cause::Truncated { got: self.offset, size: self.size },
                Err(cause) => cause,
            };
            self.body = None;
            self.fail(cause).await?;
        }
        Ok(None)
    }

    /// The caller found the bytes to be wrong: all that came is void, and the next call of [`next`](Self::next) begins
    /// at the first byte from the next host.
    ///
    /// # Errors
    /// Of kind `InvalidContent`, when there is no other host.
    pub fn start_over(&mut self, why: &str) -> Result<(), RegistryError> {
        self.body = None;
        self.offset = 0;
        self.since_failure = 0;
        self.finished = false;
        self.session.reject(&mut self.attempts, Cause::Content(redact::text(why, 300)), &self.asked)
    }

    fn too_long(&mut self) -> RegistryError {
        self.body = None;
        self.finished = true;
        let cause = Cause::Content(format!("more than the {} bytes that the descriptor gives", self.size));
        let who = self.session.who(self.attempts.host());
        let failure = Failure { host: who.name.to_owned(), upstream: who.upstream, attempts: 1, cause };
        RegistryError::new(&*self.asked, vec![failure])
    }

    async fn reopen(&mut self) -> Result<(), RegistryError> {
        match self.request().await {
            Ok(body) => {
                self.body = Some(body);
                Ok(())
            }
            Err(cause) => self.fail(cause).await,
        }
    }

    async fn fail(&mut self, cause: Cause) -> Result<(), RegistryError> {
        if self.since_failure >= PROGRESS {
            self.attempts.progressed();
        }
        self.since_failure = 0;
        self.session.failed(&mut self.attempts, cause, &self.asked).await
    }

    async fn request(&mut self) -> Result<Body, Cause> {
        let host = self.attempts.host();
        let from = if self.no_ranges == Some(host) { 0 } else { self.offset };
        let mut headers = HeaderMap::new();
        if from > 0 {
            let range = HeaderValue::try_from(format!("bytes={from}-")).expect("digits are a header value");
            headers.insert(RANGE, range);
        }
        let name = self.digest.to_string();
        let path = Path { method: Method::Get, what: "blobs", name: &name };
        let answer = self.session.request(host, &path, headers).await?;
        let start = match answer.status() {
            StatusCode::OK => {
                self.check_length(&answer)?;
                0
            }
            StatusCode::PARTIAL_CONTENT => {
                if let Err(why) = check_range(&answer, from, self.size) {
                    self.no_ranges = Some(host);
                    return Err(Cause::Range(why));
                }
                from
            }
            StatusCode::RANGE_NOT_SATISFIABLE if from > 0 => {
                self.no_ranges = Some(host);
                return Err(Cause::Range(format!("range from byte {from} was refused")));
            }
            _ => {
                let limit = self.session.client().options().limits.error_body;
                return Err(answer.into_cause(limit).await);
            }
        };
        Ok(Body { response: answer.response, skip: self.offset - start })
    }

    /// The length that the answer announces must be the descriptor's.
    fn check_length(&self, answer: &Answer) -> Result<(), Cause> {
        let Some(length) = answer.response.headers().get(CONTENT_LENGTH) else { return Ok(()) };
        let length = length.to_str().ok().and_then(|t| t.trim().parse::<u64>().ok());
        if length == Some(self.size) {
            return Ok(());
        }
        let what = match (length, answer.content_type()) {
            (Some(n), t) if t.is_empty() => format!("{n} bytes"),
            (Some(n), t) => format!("{n} bytes of {}", redact::text(&t, 60)),
            (None, _) => "a length that is no number".into(),
        };
        Err(Cause::Content(format!("the answer has {what}, the descriptor gives {} bytes", self.size)))
    }
}

impl fmt::Debug for BlobStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobStream")
            .field("digest", &self.digest)
            .field("size", &self.size)
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}

/// A partial answer must begin at the byte that was asked for and belong to a whole of the right size.
fn check_range(answer: &Answer, from: u64, size: u64) -> Result<(), String> {
    let value = answer.response.headers().get(CONTENT_RANGE);
    let text = value.map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned()).unwrap_or_default();
    range_fits(&text, from, size)
        .then_some(())
        .ok_or_else(|| format!("wrong range: asked from byte {from} of {size}, got {:?}", redact::text(&text, 60)))
}

fn range_fits(text: &str, from: u64, size: u64) -> bool {
    let Some(rest) = text.trim().strip_prefix("bytes ") else { return false };
    let Some((range, total)) = rest.trim().split_once('/') else { return false };
    let Some((start, end)) = range.split_once('-') else { return false };
    let (Ok(start), Ok(end)) = (start.trim().parse::<u64>(), end.trim().parse::<u64>()) else { return false };
    let total_fits = total.trim() == "*" || total.trim().parse() == Ok(size);
    start == from && end >= start && end < size && total_fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let cases = [
            ("bytes 5-9/10", true),
            ("bytes 5-7/10", true),
            ("bytes 5-9/*", true),
            ("bytes 4-9/10", false),
            ("bytes 5-10/10", false),
            ("bytes 5-9/11", false),
            ("bytes 5-4/10", false),
            ("bytes */10", false),
            ("5-9/10", false),
            ("bytes 5-99999999999999999999/10", false),
            ("", false),
        ];
        for (text, want) in cases {
            assert_eq!(range_fits(text, 5, 10), want, "{text:?}");
        }
    }
}
