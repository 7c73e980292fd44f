//! [`RuntimePassthrough`]: forwards the calls of clients to a runtime unchanged, and its answers back. Nothing is decoded, so
//! fields, calls, trailers and streams that this program does not know pass as well. Called by the server.

use std::fmt;
use std::sync::Arc;

use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::{Status, TimeoutExpired};
use tower::ServiceExt as _;

use super::call::{Caller, causes};
use crate::Endpoint;
use crate::status::to_status;

/// A runtime to which calls pass unread. Clones share the connection.
#[derive(Clone)]
pub struct RuntimePassthrough {
    caller: Arc<Caller>,
}

impl RuntimePassthrough {
    pub(super) fn new(caller: Arc<Caller>) -> Self {
        Self { caller }
    }

    /// Where the runtime is.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.caller.connector.endpoint
    }

    /// The runtime's answer to a call of the name `name`, or why there is none. A call that is dropped ends at the runtime, too.
    pub(crate) async fn call(&self, name: &str, request: Request<Body>) -> Response<Body> {
        let error = match self.caller.channel.clone().oneshot(request).await {
            Ok(answer) => return answer,
            Err(error) => error,
        };
        if causes(&error).any(|cause| cause.is::<TimeoutExpired>()) {
            return Status::deadline_exceeded(format!("{name}: no answer from {}", self.endpoint())).into_http();
        }
        let error = self.caller.error(&Status::from_error(Box::new(error)));
        tracing::debug!(call = name, %error, "the runtime did not answer");
        to_status(&error).into_http()
    }
}

impl fmt::Debug for RuntimePassthrough {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RuntimePassthrough").field(self.endpoint()).finish()
    }
}
