//! A proxy before the socket of a containerd that fails single calls with a status of gRPC, and passes all others. Reads no messages.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::lock::Mutex;
use http_body_util::{Either, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{UnixListener, UnixStream};

/// The call that fails, as the end of its path, and the number of the status.
type Fault = Option<(&'static str, u16)>;

/// The proxy. It lives as long as the runtime that it was started on.
pub(crate) struct GrpcFaults {
    fault: Arc<Mutex<Fault>>,
    socket: PathBuf,
}

impl GrpcFaults {
    /// Starts one at `socket` before `target`. Needs a tokio runtime.
    pub(crate) fn start(socket: PathBuf, target: &Path) -> Self {
        let listener = UnixListener::bind(&socket).expect("listen on a socket");
        let fault = Arc::new(Mutex::default());
        let (target, shared) = (target.to_owned(), Arc::clone(&fault));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, target.clone(), Arc::clone(&shared)));
            }
        });
        Self { fault, socket }
    }

    /// `unix://…`.
    pub(crate) fn endpoint(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// Makes calls whose path ends so fail with this status.
    pub(crate) fn fail(&self, call: &'static str, status: u16) {
        *self.fault.lock() = Some((call, status));
    }

    /// Makes all calls pass again.
    pub(crate) fn heal(&self) {
        *self.fault.lock() = None;
    }
}

async fn carry(client: UnixStream, target: PathBuf, fault: Arc<Mutex<Fault>>) {
    // A connection that breaks is the clients' affair.
    let Ok(server) = UnixStream::connect(&target).await else { return };
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(server)).await;
    let Ok((sender, connection)) = handshake else { return };
    tokio::spawn(connection);
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (mut sender, fault) = (sender.clone(), *fault.lock());
        async move {
            if let Some((call, status)) = fault
                && request.uri().path().ends_with(call)
            {
                let failed = Response::builder()
                    .header("content-type", "application/grpc")
                    .header("grpc-status", status)
                    .header("grpc-message", "a fault of the test");
                return Ok(failed.body(Either::Right(Empty::<Bytes>::new())).expect("a response"));
            }
            sender.ready().await?;
            Ok::<_, hyper::Error>(sender.send_request(request).await?.map(Either::Left))
        }
    });
    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let _ = server.serve_connection(TokioIo::new(client), service).await;
}
