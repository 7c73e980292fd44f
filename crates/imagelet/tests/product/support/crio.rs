//! A stand-in for CRI-O on a socket: it names itself `cri-o`, has image IDs without an algorithm, refuses IDs with one, keeps images of
//! its own, and shows those of an additional image store, whose lists it reads at each call. Runs no containers; lists the ones that a
//! test describes.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use base::lock::Mutex;
use cri_api::{
    Error, FilesystemUsage, FsInfo, Image, ImageFilter, ImageService, ImageSpec, ImageStatus, Kind, PullImageRequest,
    Result,
};
use cri_grpc::Endpoint;
use cri_grpc::server::{ServerOptions, serve};
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;

/// A container: its ID, and the image as `image`, `imageRef` and `imageId` report it.
#[derive(Clone)]
pub(crate) struct Container {
    pub(crate) id: &'static str,
    pub(crate) image: String,
    pub(crate) image_ref: String,
    pub(crate) image_id: String,
}

/// The state of the stand-in.
#[derive(Default)]
struct State {
    /// Images that no other store has.
    own: Mutex<Vec<Image>>,
    containers: Mutex<Vec<Container>>,
    /// The additional image store, if it is configured.
    view: Mutex<Option<PathBuf>>,
    /// Set while Version fails.
    is_starting: Mutex<bool>,
    pulls: Mutex<Vec<String>>,
    graph_root: PathBuf,
}

/// The stand-in. Lives as long as the runtime that it was started on.
pub(crate) struct Crio {
    state: Arc<State>,
    socket: PathBuf,
}

impl Crio {
    /// Starts one in a directory. Needs a tokio runtime.
    pub(crate) fn start(directory: &Path) -> Self {
        let state = Arc::new(State { graph_root: directory.join("storage"), ..State::default() });
        std::fs::create_dir_all(state.graph_root.join("overlay-containers")).expect("create a directory");
        let images = directory.join("images.sock");
        let endpoint = Endpoint::parse(&format!("unix://{}", images.display())).expect("an endpoint");
        let options = ServerOptions::new(Arc::new(Images(Arc::clone(&state))), "1");
        tokio::spawn(async move { serve(&endpoint, options, CancellationToken::new()).await });
        let socket = directory.join("crio.sock");
        let listener = UnixListener::bind(&socket).expect("listen on a socket");
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, images.clone(), Arc::clone(&shared)));
            }
        });
        Self { state, socket }
    }

    /// `unix://…`.
    pub(crate) fn endpoint(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// Configures the additional image store.
    pub(crate) fn read(&self, view: &Path) {
        *self.state.view.lock() = Some(view.to_owned());
    }

    /// Gives it an image of its own, by ID without algorithm.
    pub(crate) fn keep(&self, id: &str, name: &str) {
        let image = Image { id: id.to_owned(), repo_tags: vec![name.to_owned()], size: 1, ..Image::default() };
        self.state.own.lock().push(image);
    }

    /// IDs of its own images.
    pub(crate) fn own(&self) -> Vec<String> {
        self.state.own.lock().iter().map(|image| image.id.clone()).collect()
    }

    /// Lists these containers from now on.
    pub(crate) fn run(&self, containers: &[Container]) {
        *self.state.containers.lock() = containers.to_vec();
    }

    /// Makes Version fail, or answer again.
    pub(crate) fn starts(&self, is_starting: bool) {
        *self.state.is_starting.lock() = is_starting;
    }

    /// Images that it was asked to pull.
    pub(crate) fn pulls(&self) -> Vec<String> {
        self.state.pulls.lock().clone()
    }
}

/// The image service.
struct Images(Arc<State>);

impl Images {
    fn all(&self) -> Vec<Image> {
        let mut images = self.0.own.lock().clone();
        let view = self.0.view.lock().clone();
        let rows = view.and_then(|view| std::fs::read(view.join("overlay-images/images.json")).ok());
        let rows: Vec<Value> = rows.map(|rows| serde_json::from_slice(&rows).expect("JSON")).unwrap_or_default();
        for row in rows {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let names = row["names"].as_array().cloned().unwrap_or_default();
            let (digests, tags) = names.iter().map(text).partition(|name| name.contains('@'));
            let image =
                Image { id: text(&row["id"]), repo_tags: tags, repo_digests: digests, size: 1, ..Image::default() };
            if !images.iter().any(|known| known.id == image.id) {
                images.push(image);
            }
        }
        // As CRI-O pins the image of sandboxes.
        let is_pause = |image: &Image| image.repo_tags.iter().any(|tag| tag.contains("/pause:"));
        images.into_iter().map(|image| Image { pinned: is_pause(&image), ..image }).collect()
    }

    fn find(&self, image: &ImageSpec) -> Result<Option<Image>> {
        let text = &image.image;
        if text.starts_with("sha256:") {
            let message = format!("short-name {text:?} did not resolve to an alias");
            return Err(Error::new(Kind::Unknown, message));
        }
        let is_it =
            |found: &Image| found.id == *text || found.repo_tags.contains(text) || found.repo_digests.contains(text);
        Ok(self.all().into_iter().find(is_it))
    }
}

#[async_trait]
impl ImageService for Images {
    async fn list_images(&self, filter: Option<&ImageFilter>) -> Result<Vec<Image>> {
        match filter.and_then(|filter| filter.image.as_ref()).filter(|image| !image.image.is_empty()) {
            Some(image) => Ok(self.find(image)?.into_iter().collect()),
            None => Ok(self.all()),
        }
    }

    async fn image_status(&self, image: &ImageSpec, _: bool) -> Result<ImageStatus> {
        Ok(ImageStatus { image: self.find(image)?, ..ImageStatus::default() })
    }

    async fn pull_image(&self, request: PullImageRequest) -> Result<String> {
        self.0.pulls.lock().push(request.image.image.clone());
        Err(Error::new(Kind::Unavailable, "a pull of the stand-in"))
    }

    async fn remove_image(&self, image: &ImageSpec) -> Result<()> {
        if let Some(found) = self.find(image)? {
            self.0.own.lock().retain(|own| own.id != found.id);
        }
        Ok(())
    }

    async fn image_fs_info(&self) -> Result<FsInfo> {
        let at = |name: &str| FilesystemUsage {
            timestamp: 1,
            mountpoint: self.0.graph_root.join(name).display().to_string(),
            used_bytes: Some(1),
            inodes_used: Some(1),
        };
        Ok(FsInfo {
            image_filesystems: vec![at("overlay-images")],
            container_filesystems: vec![at("overlay-containers")],
        })
    }
}

/// A length-delimited field of a message.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut length = value.len();
    while length > 127 {
        bytes.push(u8::try_from(length & 127 | 128).expect("seven bits and one"));
        length >>= 7;
    }
    bytes.push(u8::try_from(length).expect("seven bits"));
    bytes.extend(value);
    bytes
}

fn version() -> Vec<u8> {
    let values = ["0.1.0", "cri-o", "1.37.0", "v1"];
    (1..).zip(values).flat_map(|(number, value)| field(number, value.as_bytes())).collect()
}

fn containers(state: &State) -> Vec<u8> {
    let container = |container: &Container| {
        let Container { id, image, image_ref, image_id } = container;
        let metadata = field(1, b"main");
        let spec = field(1, image.as_bytes());
        let fields: [(u8, &[u8]); 6] = [
            (1, id.as_bytes()),
            (2, b"sandbox"),
            (3, &metadata),
            (4, &spec),
            (5, image_ref.as_bytes()),
            (10, image_id.as_bytes()),
        ];
        let fields: Vec<u8> = fields.iter().flat_map(|(number, value)| field(*number, value)).collect();
        field(1, &fields)
    };
    state.containers.lock().iter().flat_map(container).collect()
}

type Body = http_body_util::combinators::BoxBody<Bytes, Infallible>;

/// An answer of gRPC, or its status.
fn answer(answer: std::result::Result<Vec<u8>, u16>) -> Response<Body> {
    let builder = Response::builder().header("content-type", "application/grpc");
    let response = match answer {
        Ok(message) => {
            let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
            let trailers =
                HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))]);
            let body = Full::<Bytes>::from([&[0][..], &length, &message].concat());
            builder.body(body.with_trailers(std::future::ready(Some(Ok(trailers)))).boxed())
        }
        Err(status) => builder.header("grpc-status", status).body(Full::default().boxed()),
    };
    response.expect("a response")
}

async fn carry(client: UnixStream, images: PathBuf, state: Arc<State>) {
    let Ok(server) = UnixStream::connect(&images).await else { return };
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(server)).await;
    let Ok((sender, connection)) = handshake else { return };
    tokio::spawn(connection);
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (mut sender, state) = (sender.clone(), Arc::clone(&state));
        async move {
            let own = match request.uri().path().strip_prefix("/runtime.v1.RuntimeService/") {
                Some("Version") if *state.is_starting.lock() => Some(answer(Err(14))),
                Some("Version") => Some(answer(Ok(version()))),
                Some("ListContainers") => Some(answer(Ok(containers(&state)))),
                Some(call) if call.starts_with("Stream") => Some(answer(Err(12))),
                _ => None,
            };
            if let Some(own) = own {
                return Ok(own.map(Either::Right));
            }
            sender.ready().await?;
            Ok::<_, hyper::Error>(sender.send_request(request).await?.map(Either::Left))
        }
    });
    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let _ = server.serve_connection(TokioIo::new(client), service).await;
}
