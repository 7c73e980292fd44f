//! [`Handler`]: something that is done to a container, and [`Probe`] and [`Lifecycle`], which say when. Handlers are
//! written into annotations and read from there again, in Kubernetes' JSON. Read by [`super::Container`].

use serde::Serialize;
use serde_json::Value;

use super::int_or_text::IntOrText;
use super::read::{self, Fields, Read};
use super::words::words;
use crate::field::{FieldErrors, FieldPath};

words! {
    /// How an HTTP request is made.
    Scheme {
        /// In plain text.
        Http = "HTTP",
        /// In TLS, whose certificate is not checked.
        Https = "HTTPS",
    }
}

/// Something that is done to a container; one of the parts is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Handler {
    /// A program is run in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecAction>,
    /// An HTTP request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_get: Option<HttpGetAction>,
    /// A connection is made to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_socket: Option<TcpAction>,
    /// A gRPC health check; only as a probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc: Option<GrpcAction>,
    /// Nothing, for so many seconds; only as a hook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sleep: Option<SleepAction>,
}

/// A program in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExecAction {
    /// Program and arguments; no shell is involved.
    pub command: Vec<String>,
}

/// A request over HTTP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpGetAction {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Port, or its name.
    pub port: IntOrText,
    /// Host; the pod's address unless said.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// In plain text unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme: Option<Scheme>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub http_headers: Vec<HttpHeader>,
}

/// A header of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HttpHeader {
    pub name: String,
    pub value: String,
}

/// A connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TcpAction {
    /// Port, or its name.
    pub port: IntOrText,
    /// Host; the pod's address unless said.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
}

/// A request of gRPC's health protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GrpcAction {
    pub port: i32,
    /// Service that is asked for; empty for the whole.
    pub service: String,
}

/// A pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SleepAction {
    /// How long.
    pub seconds: i64,
}

/// Hooks of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lifecycle {
    /// Right after its start.
    pub post_start: Option<Handler>,
    /// Before it is stopped.
    pub pre_stop: Option<Handler>,
    /// The signal that stops it, instead of the image's.
    pub stop_signal: String,
}

/// A question that is asked again and again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probe {
    /// The question.
    pub handler: Handler,
    /// Seconds before the first.
    pub initial_delay_seconds: i32,
    /// Seconds for an answer.
    pub timeout_seconds: i32,
    /// Seconds between two.
    pub period_seconds: i32,
    /// Good answers in a row that make it good.
    pub success_threshold: i32,
    /// Bad answers in a row that make it bad.
    pub failure_threshold: i32,
    /// Seconds to end for a container that this probe ends.
    pub termination_grace_period_seconds: Option<i64>,
}

impl Handler {
    /// Reads a handler out of an annotation.
    ///
    /// # Errors
    /// What is wrong with it; the path begins with `handler`.
    pub fn from_json(text: &str) -> Result<Self, FieldErrors> {
        let mut errors = FieldErrors::default();
        let path = FieldPath::new("handler");
        let handler = match serde_json::from_str::<Value>(text) {
            Ok(value) => read::object(&value, path, &mut errors).unwrap_or_default(),
            Err(_) => {
                errors.invalid_plain(path, "text", "must be JSON");
                Self::default()
            }
        };
        errors.into_result().map(|()| handler)
    }

    /// How many parts are set.
    pub(crate) fn parts(&self) -> usize {
        let parts = [
            self.exec.is_some(),
            self.http_get.is_some(),
            self.tcp_socket.is_some(),
            self.grpc.is_some(),
            self.sleep.is_some(),
        ];
        parts.into_iter().filter(|set| *set).count()
    }
}

impl Read for Handler {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self {
            exec: fields.object("exec"),
            http_get: fields.object("httpGet"),
            tcp_socket: fields.object("tcpSocket"),
            grpc: fields.object("grpc"),
            sleep: fields.object("sleep"),
        }
    }
}

impl Read for ExecAction {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self { command: fields.texts("command") }
    }
}

impl Read for HttpGetAction {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self {
            path: fields.string("path"),
            port: fields.int_or_text("port").unwrap_or_default(),
            host: fields.string("host"),
            scheme: fields.word("scheme"),
            http_headers: fields.list("httpHeaders"),
        }
    }
}

impl Read for HttpHeader {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self { name: fields.string("name"), value: fields.string("value") }
    }
}

impl Read for TcpAction {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self { port: fields.int_or_text("port").unwrap_or_default(), host: fields.string("host") }
    }
}

impl Read for GrpcAction {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self { port: fields.int("port").unwrap_or_default(), service: fields.string("service") }
    }
}

impl Read for SleepAction {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self { seconds: fields.long("seconds").unwrap_or_default() }
    }
}

impl Read for Lifecycle {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self {
            post_start: fields.object("postStart"),
            pre_stop: fields.object("preStop"),
            stop_signal: fields.string("stopSignal"),
        }
    }
}

impl Read for Probe {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self {
            handler: Handler::read(fields),
            initial_delay_seconds: fields.int("initialDelaySeconds").unwrap_or_default(),
            timeout_seconds: fields.int("timeoutSeconds").unwrap_or_default(),
            period_seconds: fields.int("periodSeconds").unwrap_or_default(),
            success_threshold: fields.int("successThreshold").unwrap_or_default(),
            failure_threshold: fields.int("failureThreshold").unwrap_or_default(),
            termination_grace_period_seconds: fields.long("terminationGracePeriodSeconds"),
        }
    }
}
