//! The calls that are answered, the service that answers each, the time that they may take, and the errors for the others.
//! Clients show these errors to people: the transport's own answer to an unknown call has no message.

use std::time::Duration;

use base::trace_context;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{HeaderValue, Request, Response};
use tower::Service as _;
use tracing::Instrument as _;

use super::ending::{CallNature, Ending, Sent};
use super::image::ImageCalls;
use super::runtime::NoPods;
use crate::client::RuntimePassthrough;
use crate::pb::image_service_server::ImageServiceServer;
use crate::pb::runtime_service_server::RuntimeServiceServer;
use crate::{ADMIN_SOCKET, INSTANCE};

/// Start of the paths that are for the image service.
const IMAGES: &str = "/runtime.v1.ImageService/";
/// Start of the paths that are for the runtime.
const RUNTIME: &str = "/runtime.v1.RuntimeService/";
/// Calls that are passed to a handler.
const SERVED: [&str; 12] = [
    "/runtime.v1.ImageService/ListImages",
    "/runtime.v1.ImageService/StreamImages",
    "/runtime.v1.ImageService/ImageStatus",
    "/runtime.v1.ImageService/PullImage",
    "/runtime.v1.ImageService/RemoveImage",
    "/runtime.v1.ImageService/ImageFsInfo",
    "/runtime.v1.RuntimeService/Version",
    "/runtime.v1.RuntimeService/Status",
    "/runtime.v1.RuntimeService/ListPodSandbox",
    "/runtime.v1.RuntimeService/StreamPodSandboxes",
    "/runtime.v1.RuntimeService/ListContainers",
    "/runtime.v1.RuntimeService/StreamContainers",
];

/// Hands each call to the service it is for.
#[derive(Clone)]
pub(super) struct CallRouter {
    pub(super) images: ImageServiceServer<ImageCalls>,
    /// The answers where there is no runtime.
    pub(super) stand_in: RuntimeServiceServer<NoPods>,
    /// The runtime that receives every call for a runtime.
    pub(super) runtime: Option<RuntimePassthrough>,
    /// The path that answers about images name.
    pub(super) admin_socket: Option<HeaderValue>,
    pub(super) ending: Ending,
}

impl CallRouter {
    /// The answer to a call, within the deadline that the client names. Streams answer at once; the client ends them.
    /// An error is a call that this server did not begin to answer, as far as its client has to know.
    pub(super) async fn call(self, request: Request<Body>) -> Sent {
        let path = request.uri().path();
        let passed = self.runtime.is_some() && path.starts_with(RUNTIME);
        if !passed && let Some(message) = refusal(path) {
            tracing::debug!(call = path, error = %message, "call is not served");
            return Ok(Status::unimplemented(message).into_http());
        }
        let name = path.trim_start_matches('/').to_owned();
        let nature = CallNature::of(&name);
        let ending = self.ending.clone();
        let span = tracing::trace_span!("cri_served", otel.name = name, otel.kind = "server", rpc.system = "grpc");
        trace_context::follow(&span, request.headers());
        ending.until(nature, &name, self.answer(&name, nature, request)).instrument(span).await
    }

    async fn answer(mut self, name: &str, nature: CallNature, request: Request<Body>) -> Response<Body> {
        let limit = request.headers().get("grpc-timeout").and_then(|value| parse_timeout(value.as_bytes()));
        let answer = async {
            // Generated services are always ready, and never fail.
            let Ok(answer) = match &self.runtime {
                _ if request.uri().path().starts_with(IMAGES) => {
                    let mut answer = self.images.call(request).await;
                    if let (Ok(answer), Some(path)) = (&mut answer, self.admin_socket) {
                        answer.headers_mut().insert(ADMIN_SOCKET, path);
                        answer.headers_mut().insert(INSTANCE, HeaderValue::from_static(base::process_instance()));
                    }
                    answer
                }
                Some(runtime) => Ok(self.ending.ended_with(nature, runtime.call(name, request).await)),
                None => self.stand_in.call(request).await,
            };
            answer
        };
        let Some(limit) = limit else { return answer.await };
        match tokio::time::timeout(limit, answer).await {
            Ok(answer) => answer,
            Err(_) => Status::deadline_exceeded(format!("{name}: not done within {limit:?}")).into_http(),
        }
    }
}

/// Reads a `grpc-timeout` header: up to eight digits and a unit. Anything else is no deadline.
fn parse_timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(match unit {
        b'H' => Duration::from_secs(number * 3600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

/// Why a call is not answered; `None` when it is.
fn refusal(path: &str) -> Option<String> {
    if SERVED.contains(&path) {
        return None;
    }
    let call = path.trim_start_matches('/');
    let why = match call.split_once('/').map(|(service, _)| service) {
        Some("runtime.v1.RuntimeService") => {
            "this endpoint serves images; pods and containers need the endpoint of a container runtime"
        }
        Some(service) if service.starts_with("runtime.") => "only CRI runtime.v1 is served",
        _ => "no such call",
    };
    Some(format!("{call}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_the_call_and_the_reason() {
        let cases = [
            ("/runtime.v1.ImageService/PullImage", None),
            ("/runtime.v1.RuntimeService/Version", None),
            ("/runtime.v1.RuntimeService/RunPodSandbox", Some("serves images")),
            ("/runtime.v1.ImageService/NewCall", Some("only CRI runtime.v1")),
            ("/runtime.v1alpha2.ImageService/ListImages", Some("only CRI runtime.v1")),
            ("/grpc.health.v1.Health/Check", Some("no such call")),
            ("/", Some("no such call")),
            ("", Some("no such call")),
        ];
        for (path, want) in cases {
            let got = refusal(path);
            assert_eq!(got.is_some(), want.is_some(), "{path}");
            if let (Some(got), Some(want)) = (got, want) {
                assert!(got.contains(want) && got.starts_with(path.trim_start_matches('/')), "{got}");
            }
        }
    }

    #[test]
    fn timeouts_are_read_as_the_protocol_writes_them() {
        let cases = [
            ("1H", Some(Duration::from_secs(3600))),
            ("2M", Some(Duration::from_secs(120))),
            ("3S", Some(Duration::from_secs(3))),
            ("300m", Some(Duration::from_millis(300))),
            ("99999999u", Some(Duration::from_micros(99_999_999))),
            ("0n", Some(Duration::ZERO)),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3600))),
            ("123456789n", None),
            ("H", None),
            ("", None),
            ("1", None),
            ("1x", None),
            ("-1S", None),
            ("+1S", None),
        ];
        for (text, want) in cases {
            assert_eq!(parse_timeout(text.as_bytes()), want, "{text}");
        }
    }
}
