//! Servers for the tests: the real one with the fake behind it, and a raw one whose answers a test chooses.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use cri_api::testing::FakeImageService;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::{Status, transport};

use crate::client::{ClientOptions, ConnectBackoff, RemoteImageService, connect_image_service};
use crate::server::{Listener, ServeError, ServerOptions, bind, serve_on};
use crate::{Endpoint, pb};

/// Ends a test that hangs.
pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), work).await.expect("the test hangs")
}

pub(crate) fn endpoint_in(dir: &TempDir) -> Endpoint {
    Endpoint::parse(&format!("unix://{}/cri.sock", dir.path().display())).unwrap()
}

/// A server that runs until it is dropped or stopped.
pub(crate) struct Running {
    pub(crate) endpoint: Endpoint,
    pub(crate) shutdown: CancellationToken,
    task: JoinHandle<Result<(), ServeError>>,
    _dir: Option<TempDir>,
}

impl Running {
    /// The fake on a socket of its own.
    pub(crate) fn fake(fake: &FakeImageService) -> Self {
        Self::with(ServerOptions::new(Arc::new(fake.clone()), "1.2.3"))
    }

    pub(crate) fn with(options: ServerOptions) -> Self {
        let dir = TempDir::new().unwrap();
        let mut running = Self::on(bind(&endpoint_in(&dir)).unwrap(), options);
        running._dir = Some(dir);
        running
    }

    pub(crate) fn on(listener: Listener, options: ServerOptions) -> Self {
        let shutdown = CancellationToken::new();
        let endpoint = listener.endpoint().clone();
        let task = TaskTracker::new().spawn(serve_on(listener, options, shutdown.clone()));
        Self { endpoint, shutdown, task, _dir: None }
    }

    pub(crate) async fn client(&self) -> RemoteImageService {
        self.client_with(ClientOptions::default()).await
    }

    pub(crate) async fn client_with(&self, options: ClientOptions) -> RemoteImageService {
        soon(connect_image_service(&self.endpoint, options)).await.unwrap()
    }

    /// Stops it and waits for its end.
    pub(crate) async fn stop(mut self) {
        self.shutdown.cancel();
        soon(&mut self.task).await.unwrap().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Attempts that follow each other closely.
pub(crate) fn quick() -> ClientOptions {
    let base = Duration::from_millis(5);
    ClientOptions {
        backoff: ConnectBackoff { base, max: base, ..ConnectBackoff::default() },
        ..ClientOptions::default()
    }
}

/// A server of another make. Stops when it is dropped.
pub(crate) struct Raw {
    pub(crate) endpoint: Endpoint,
    task: JoinHandle<Result<(), transport::Error>>,
    _dir: TempDir,
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) fn raw<S, F>(service: S) -> Raw
where
    S: tower::Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future = F>,
    S: Clone + Send + 'static,
    F: Future<Output = Result<Response<Body>, Infallible>> + Send + 'static,
{
    let dir = TempDir::new().unwrap();
    let endpoint = endpoint_in(&dir);
    let listener = tokio::net::UnixListener::bind(endpoint.path()).unwrap();
    let server = transport::Server::builder().serve_with_incoming(service, UnixListenerStream::new(listener));
    Raw { endpoint, task: TaskTracker::new().spawn(server), _dir: dir }
}

/// An image service with answers of a test's choice; what has none is `Unimplemented`.
#[derive(Clone, Default)]
pub(crate) struct Answers {
    pub(crate) list: Option<Vec<pb::Image>>,
    pub(crate) stream: Option<Vec<Result<Vec<pb::Image>, Status>>>,
    pub(crate) status: Option<pb::ImageStatusResponse>,
    pub(crate) image_ref: Option<String>,
    pub(crate) fs_info: Option<pb::ImageFsInfoResponse>,
    /// Paths of the calls so far.
    pub(crate) calls: Arc<base::lock::Mutex<Vec<&'static str>>>,
}

impl Answers {
    pub(crate) fn calls(&self) -> Vec<&'static str> {
        self.calls.lock().clone()
    }

    fn called(&self, name: &'static str) {
        self.calls.lock().push(name);
    }

    pub(crate) fn serve(&self) -> Raw {
        raw(pb::image_service_server::ImageServiceServer::new(self.clone()))
    }
}

fn given<T: Clone>(answer: Option<&T>) -> Result<T, Status> {
    answer.cloned().ok_or_else(|| Status::unimplemented("unknown method for service runtime.v1.ImageService"))
}

#[tonic::async_trait]
impl pb::image_service_server::ImageService for Answers {
    async fn list_images(
        &self,
        _: tonic::Request<pb::ListImagesRequest>,
    ) -> Result<tonic::Response<pb::ListImagesResponse>, Status> {
        self.called("ListImages");
        Ok(tonic::Response::new(pb::ListImagesResponse { images: given(self.list.as_ref())? }))
    }

    async fn stream_images(
        &self,
        _: tonic::Request<pb::StreamImagesRequest>,
    ) -> Result<tonic::Response<tonic::codegen::BoxStream<pb::StreamImagesResponse>>, Status> {
        self.called("StreamImages");
        let batches = given(self.stream.as_ref())?;
        let messages = batches.into_iter().map(|batch| batch.map(|images| pb::StreamImagesResponse { images }));
        Ok(tonic::Response::new(Box::pin(futures::stream::iter(messages))))
    }

    async fn image_status(
        &self,
        _: tonic::Request<pb::ImageStatusRequest>,
    ) -> Result<tonic::Response<pb::ImageStatusResponse>, Status> {
        self.called("ImageStatus");
        Ok(tonic::Response::new(given(self.status.as_ref())?))
    }

    async fn pull_image(
        &self,
        _: tonic::Request<pb::PullImageRequest>,
    ) -> Result<tonic::Response<pb::PullImageResponse>, Status> {
        self.called("PullImage");
        Ok(tonic::Response::new(pb::PullImageResponse { image_ref: given(self.image_ref.as_ref())? }))
    }

    async fn image_fs_info(
        &self,
        _: tonic::Request<pb::ImageFsInfoRequest>,
    ) -> Result<tonic::Response<pb::ImageFsInfoResponse>, Status> {
        self.called("ImageFsInfo");
        Ok(tonic::Response::new(given(self.fs_info.as_ref())?))
    }
}

/// Answers that pass the check on connect.
pub(crate) fn answers() -> Answers {
    Answers { fs_info: Some(pb::ImageFsInfoResponse::default()), ..Answers::default() }
}
