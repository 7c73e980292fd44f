//! [`RequestLog`]: a request as a test registry received it, with the status of its answer.

use http::header::{AUTHORIZATION, RANGE};

/// A request as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestLog {
    /// Method.
    pub method: String,
    /// Path without query.
    pub path: String,
    /// Query, empty for none.
    pub query: String,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body, for token requests.
    pub body: String,
    /// Status of the answer; 0 when there was none.
    pub status: u16,
}

impl RequestLog {
    /// A header's value.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// `Range`.
    #[must_use]
    pub fn range(&self) -> Option<&str> {
        self.header(RANGE.as_str())
    }

    /// `Authorization`.
    #[must_use]
    pub fn authorization(&self) -> Option<&str> {
        self.header(AUTHORIZATION.as_str())
    }
}
