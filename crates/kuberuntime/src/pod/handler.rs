//! [`Handler`]: something that is done to a container, and [`Probe`] and [`Lifecycle`], which say when. Handlers are
//! written into annotations and read from there again, in Kubernetes' JSON. Read by [`super::Container`].

use super::macros::{object, words};
use super::read::{self, Plain};
use super::values::IntOrText;
use manifest::FieldErrors;

words! {
    /// How an HTTP request is made.
    Scheme {
        /// In plain text.
        Http = "HTTP",
        /// In TLS, whose certificate is not checked.
        Https = "HTTPS",
    }
}

object! {
    /// Something that is done to a container; one of the parts is set.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Handler {
        /// A program is run in it.
        pub exec: Option<ExecAction> = "exec",
        /// An HTTP GET request is made to it.
        pub http_get: Option<HttpGetAction> = "httpGet",
        /// A connection is made to it.
        pub tcp_socket: Option<TcpAction> = "tcpSocket",
        /// A gRPC health check; only as a probe.
        pub grpc: Option<GrpcAction> = "grpc",
        /// Nothing, for so many seconds; only as a hook.
        pub sleep: Option<SleepAction> = "sleep",
    }
}

object! {
    /// A program in a container.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct ExecAction {
        /// Program and arguments; no shell is involved.
        pub command: Vec<String> = "command" always,
    }
}

object! {
    /// A request over HTTP.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct HttpGetAction {
        /// Path with query; `/` unless said.
        pub path: String = "path",
        /// Port, or its name.
        pub port: IntOrText = "port" always,
        /// Host; the pod's address unless said.
        pub host: String = "host",
        /// In plain text unless said.
        pub scheme: Option<Scheme> = "scheme",
        /// Headers of the request; a name may stand there several times.
        pub http_headers: Vec<HttpHeader> = "httpHeaders",
    }
}

object! {
    /// A header of an HTTP request.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct HttpHeader {
        /// Name, in any case (RFC 9110, section 5.1).
        pub name: String = "name" always,
        /// Value; may be empty.
        pub value: String = "value" always,
    }
}

object! {
    /// A TCP connection, which is closed at once.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct TcpAction {
        /// Port, or its name.
        pub port: IntOrText = "port" always,
        /// Host; the pod's address unless said.
        pub host: String = "host",
    }
}

object! {
    /// A request of gRPC's health protocol.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct GrpcAction {
        /// Port of the pod; names are not allowed.
        pub port: i32 = "port" always,
        /// Service that is asked for; empty for the whole.
        pub service: String = "service" always,
    }
}

object! {
    /// A pause.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SleepAction {
        /// How long.
        pub seconds: i64 = "seconds" always,
    }
}

object! {
    /// Hooks of a container.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Lifecycle {
        /// Right after its start.
        pub post_start: Option<Handler> = "postStart",
        /// Before it is stopped.
        pub pre_stop: Option<Handler> = "preStop",
        /// The signal that stops it, instead of the image's.
        pub stop_signal: String = "stopSignal",
    }
}

object! {
    /// A question that is asked again and again.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Probe {
        /// How the container is asked.
        pub handler: Handler = flat,
        /// Seconds before the first.
        pub initial_delay_seconds: i32 = "initialDelaySeconds",
        /// Seconds for an answer.
        pub timeout_seconds: i32 = "timeoutSeconds",
        /// Seconds between two.
        pub period_seconds: i32 = "periodSeconds",
        /// Good answers in a row that make it good.
        pub success_threshold: i32 = "successThreshold",
        /// Bad answers in a row that make it bad.
        pub failure_threshold: i32 = "failureThreshold",
        /// Seconds to end for a container that this probe ends.
        pub termination_grace_period_seconds: Option<i64> = "terminationGracePeriodSeconds",
    }
}

impl Plain for Lifecycle {}

impl Handler {
    /// Reads a handler out of an annotation.
    ///
    /// # Errors
    /// The handler is not valid; paths in the errors begin with `handler`.
    pub fn from_json(text: &str) -> Result<Self, FieldErrors> {
        read::from_text(text, "handler")
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
