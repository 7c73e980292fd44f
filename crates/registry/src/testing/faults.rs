//! [`Faults`]: what a test registry does wrong, for which requests, and how often.

use base::lock::Mutex;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// A way of going wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Answer with this status, these headers and this body.
    Status {
        /// Status code.
        code: u16,
        /// Headers.
        headers: Vec<(String, String)>,
        /// Body.
        body: String,
    },
    /// Announce the whole and end the connection in order after so many bytes.
    Truncate {
        /// Bytes that are sent.
        after: usize,
    },
    /// Reset the connection after so many bytes.
    Reset {
        /// Bytes that are sent.
        after: usize,
    },
    /// Close the connection without any answer.
    Drop,
    /// Change one byte in the middle.
    Corrupt,
    /// Send one byte more than there is, with a length that fits what is sent.
    TooLong,
    /// Send one byte more than there is, chunked, so that no length shows it.
    TooLongChunked,
    /// Send one byte less than there is, with a length that fits what is sent.
    TooShort,
    /// A login page with status 200.
    Html,
    /// Redirect to the same path, again and again.
    EndlessRedirect,
    /// Redirect (307) to this base URL with the path behind it.
    RedirectTo {
        /// `scheme://host:port`
        base: String,
    },
    /// Redirect (307) to this very URL.
    Location {
        /// The header's value.
        url: String,
    },
    /// Send the whole from the first byte, whatever range was asked for.
    IgnoreRange,
    /// Answer a range with another one.
    WrongContentRange,
    /// Refuse every range with 416.
    RefuseRange,
    /// Do not say that ranges are done.
    NoAcceptRanges,
    /// Send small pieces with pauses between them.
    Drip {
        /// Bytes in a piece.
        piece: usize,
        /// Pause before each.
        pause: Duration,
    },
    /// Answer nothing until [`Faults::release`].
    Hang,
    /// Send so many bytes and then nothing until [`Faults::release`].
    HangAfter {
        /// Bytes that are sent.
        after: usize,
    },
    /// Send chunked, without a length.
    Chunked,
    /// Send all, chunked, and break the connection where the last chunk should be.
    Unended,
    /// `Docker-Content-Digest` of other bytes.
    WrongDigestHeader,
    /// This `Content-Type`; empty for none.
    ContentType {
        /// The header's value.
        value: String,
    },
}

impl Fault {
    /// A status with an empty body.
    #[must_use]
    pub fn status(code: u16) -> Self {
        Self::Status { code, headers: Vec::new(), body: String::new() }
    }

    /// 429 with `Retry-After`.
    #[must_use]
    pub fn rate_limited(retry_after: &str) -> Self {
        let headers = vec![("retry-after".to_owned(), retry_after.to_owned())];
        let body = r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"slow down"}]}"#.to_owned();
        Self::Status { code: 429, headers, body }
    }
}

#[derive(Debug)]
struct Armed {
    pattern: String,
    left: u32,
    fault: Fault,
}

/// The faults that a registry still has to show. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    armed: Arc<Mutex<Vec<Armed>>>,
    released: Arc<Mutex<CancellationToken>>,
}

impl Faults {
    /// The next request whose path (with query) contains `pattern` goes wrong like this.
    pub fn once(&self, pattern: &str, fault: Fault) {
        self.times(pattern, 1, fault);
    }

    /// So do the next `times` requests. Faults of one pattern come one after the other, in the order of these calls.
    pub fn times(&self, pattern: &str, times: u32, fault: Fault) {
        self.armed.lock().push(Armed { pattern: pattern.to_owned(), left: times, fault });
    }

    /// So does every request from now on.
    pub fn always(&self, pattern: &str, fault: Fault) {
        self.times(pattern, u32::MAX, fault);
    }

    /// No more faults; what hangs goes on.
    pub fn clear(&self) {
        self.armed.lock().clear();
        self.release();
    }

    /// Lets everything that hangs go on.
    pub fn release(&self) {
        let mut released = self.released.lock();
        released.cancel();
        *released = CancellationToken::new();
    }

    /// Faults that have not been shown yet.
    #[must_use]
    pub fn left(&self) -> usize {
        self.armed.lock().iter().filter(|a| a.left > 0 && a.left < u32::MAX / 2).count()
    }

    /// Takes the fault for a request, and the gate that the request waits at if its fault hangs. Both are read under
    /// one lock, so that a release after this call opens the gate.
    pub(super) fn take(&self, path: &str) -> (Option<Fault>, CancellationToken) {
        let mut armed = self.armed.lock();
        let gate = self.released.lock().clone();
        let Some(found) = armed.iter_mut().find(|a| a.left > 0 && path.contains(&a.pattern)) else {
            return (None, gate);
        };
        if found.left != u32::MAX {
            found.left -= 1;
        }
        (Some(found.fault.clone()), gate)
    }
}
