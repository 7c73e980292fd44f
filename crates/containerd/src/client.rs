//! [`Client`]: the channel to containerd, the headers of its calls, and the limit on their time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Uri};
use tonic::{Request, Response, Status};

use crate::error::{Error, ErrorKind};
use crate::{Result, pb};

/// Header that names the namespace of a call.
const NAMESPACE: &str = "containerd-namespace";
/// Header that names the lease of a call.
const LEASE: &str = "containerd-lease";

/// Longest time of one call. Commit walks the layer's files, and waits for other writers of containerd's database.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);
/// Largest message that is sent or accepted: 16 MiB, as containerd's own clients.
pub(crate) const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// Service of the channel with the headers of one namespace and lease.
pub(crate) type Service = InterceptedService<Channel, Headers>;

/// Client of a containerd, in one namespace. Cheap to clone; clones share the connection.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
    channel: Channel,
    pub(crate) headers: Headers,
}

impl Client {
    /// Creates a client of the containerd at this unix socket. The first call connects, and a call after a
    /// failure connects again.
    ///
    /// # Errors
    /// The namespace is no value of a header.
    pub fn new(socket: &Path, namespace: &str) -> Result<Self> {
        let path = socket.to_owned();
        let connector = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        // The connector connects to its socket and ignores the URI.
        let channel = Channel::builder(Uri::from_static("http://localhost")).connect_with_connector_lazy(connector);
        let headers = Headers { namespace: header("connect", namespace)?, lease: None };
        Ok(Self { socket: socket.to_owned(), channel, headers })
    }

    /// Returns the socket of containerd.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns a client with this lease on every call.
    pub(crate) fn with_lease(&self, id: &str) -> Result<Self> {
        let headers = Headers { lease: Some(header("use lease", id)?), ..self.headers.clone() };
        Ok(Self { headers, ..self.clone() })
    }

    pub(crate) fn introspection(&self) -> pb::introspection::introspection_client::IntrospectionClient<Service> {
        pb::introspection::introspection_client::IntrospectionClient::new(self.service())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    pub(crate) fn events(&self) -> pb::events::events_client::EventsClient<Service> {
        pb::events::events_client::EventsClient::new(self.service()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    pub(crate) fn leases(&self) -> pb::leases::leases_client::LeasesClient<Service> {
        pb::leases::leases_client::LeasesClient::new(self.service()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    pub(crate) fn content(&self) -> pb::content::content_client::ContentClient<Service> {
        pb::content::content_client::ContentClient::new(self.service()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    pub(crate) fn snapshots(&self) -> pb::snapshots::snapshots_client::SnapshotsClient<Service> {
        pb::snapshots::snapshots_client::SnapshotsClient::new(self.service())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    pub(crate) fn images(&self) -> pb::images::images_client::ImagesClient<Service> {
        pb::images::images_client::ImagesClient::new(self.service()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    fn service(&self) -> Service {
        InterceptedService::new(self.channel.clone(), self.headers.clone())
    }
}

/// Waits for the answer of a call about `subject`, within the time of a call.
pub(crate) async fn answer<T>(
    call: &'static str,
    subject: &str,
    answer: impl Future<Output = std::result::Result<Response<T>, Status>> + Send,
) -> Result<T> {
    match timeout(CALL_TIMEOUT, answer).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(Error::of_status(call, subject, &status)),
        Err(_) => Err(Error::timed_out(call, subject, CALL_TIMEOUT)),
    }
}

/// Returns the error for an answer without its mandatory message.
pub(crate) fn empty(call: &'static str, subject: &str) -> Error {
    Error::new(ErrorKind::Failed, call, subject, "the answer is empty")
}

fn header(call: &'static str, text: &str) -> Result<MetadataValue<Ascii>> {
    let value = text.parse::<MetadataValue<Ascii>>().ok().filter(|_| !text.is_empty());
    value.ok_or_else(|| Error::new(ErrorKind::Invalid, call, text, "not the value of a header"))
}

/// Headers of each call.
#[derive(Clone, Debug)]
pub(crate) struct Headers {
    namespace: MetadataValue<Ascii>,
    pub(crate) lease: Option<MetadataValue<Ascii>>,
}

impl Interceptor for Headers {
    fn call(&mut self, mut request: Request<()>) -> std::result::Result<Request<()>, Status> {
        let headers = request.metadata_mut();
        headers.insert(NAMESPACE, self.namespace.clone());
        if let Some(lease) = &self.lease {
            headers.insert(LEASE, lease.clone());
        }
        Ok(request)
    }
}
