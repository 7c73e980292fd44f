//! Which calls are answered, and the words for those that are not. Clients show them to people: the transport's own
//! answer to an unknown call has no message.

use std::convert::Infallible;
use std::task::{Context, Poll};

use futures::future::{Either, Ready, ready};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tower::Service;

/// Start of the paths that are for the image service.
const IMAGES: &str = "/runtime.v1.ImageService/";
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
pub(super) struct Served<I, R> {
    pub(super) images: I,
    pub(super) runtime: R,
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

impl<I, R> Service<Request<Body>> for Served<I, R>
where
    I: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    R: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<Ready<Result<Response<Body>, Infallible>>, Either<I::Future, R::Future>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Generated services are always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let path = request.uri().path();
        if let Some(message) = refusal(path) {
            tracing::debug!("{message}");
            return Either::Left(ready(Ok(Status::unimplemented(message).into_http())));
        }
        Either::Right(if path.starts_with(IMAGES) {
            Either::Left(self.images.call(request))
        } else {
            Either::Right(self.runtime.call(request))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_call_and_reason() {
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
}
