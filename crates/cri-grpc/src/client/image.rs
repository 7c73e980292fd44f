//! [`RemoteImageService`]: the six calls of ImageService, with the checks that the kubelet makes of the answers.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use cri_api::{
    Error, FsInfo, Image, ImageFilter, ImageService, ImageSpec, ImageStatus, Kind, PullImageRequest, Result,
};

use super::call::{Caller, ListMode};
use super::traced::TracedChannel;
use crate::convert::all;
use crate::pb::image_service_client::ImageServiceClient;
use crate::{ADMIN_SOCKET, Endpoint, INSTANCE, pb};

/// The own API of an agent that serves images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentAddress {
    /// Path of its socket, in the mount namespace of the agent.
    pub socket: PathBuf,
    /// Identity of the agent's process, which its API answers as well; empty if the agent sends none.
    pub instance: String,
}

/// An image service on the other side of a socket. Made by
/// [`connect_image_service`](super::connect_image_service); clones share the connection.
#[derive(Clone)]
pub struct RemoteImageService {
    caller: Arc<Caller>,
    lists: Arc<ListMode>,
    agent: Arc<OnceLock<AgentAddress>>,
}

impl RemoteImageService {
    pub(super) fn new(caller: Arc<Caller>) -> Self {
        let lists = Arc::new(ListMode::new(&caller.connector.options));
        Self { caller, lists, agent: Arc::default() }
    }

    /// Returns where the peer's own API is, if the peer is an agent of imagelet.
    #[must_use]
    pub fn agent(&self) -> Option<&AgentAddress> {
        self.agent.get()
    }

    /// Where it is.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.caller.connector.endpoint
    }

    fn client(&self) -> ImageServiceClient<TracedChannel> {
        ImageServiceClient::new(self.caller.channel.clone())
            .max_decoding_message_size(self.caller.connector.options.max_message_bytes)
    }

    #[cfg(test)]
    pub(crate) fn streams_lists(&self) -> bool {
        self.lists.streams()
    }
}

/// A call of the generated client, made once more where the peer has not processed it.
macro_rules! repeated {
    ($service:ident, $call:ident, $request:ident) => {
        $service.caller.repeated(|| {
            let (mut client, request) = ($service.client(), $request.clone());
            async move { client.$call(request).await }
        })
    };
}

#[async_trait]
impl ImageService for RemoteImageService {
    async fn list_images(&self, filter: Option<&ImageFilter>) -> Result<Vec<Image>> {
        let filter: Option<pb::ImageFilter> = filter.map(|f| f.clone().into());
        let request = pb::StreamImagesRequest { filter: filter.clone() };
        let whole = pb::ListImagesRequest { filter };
        let list = self.lists.collect(repeated!(self, stream_images, request), |batch| batch.images, async {
            Ok(repeated!(self, list_images, whole).await?.into_inner().images)
        });
        Ok(all(self.caller.timed("ListImages", list).await?))
    }

    async fn image_status(&self, image: &ImageSpec, verbose: bool) -> Result<ImageStatus> {
        let name = image.image.clone();
        let request = pb::ImageStatusRequest { image: Some(image.clone().into()), verbose };
        let answer = self.caller.timed("ImageStatus", repeated!(self, image_status, request)).await?;
        let status = ImageStatus::from(answer.into_inner());
        if status.image.as_ref().is_some_and(|image| image.id.is_empty() || image.size == 0) {
            return Err(Error::new(Kind::Internal, format!("Id or size of image {name:?} is not set")));
        }
        Ok(status)
    }

    async fn pull_image(&self, request: PullImageRequest) -> Result<String> {
        // From the moment at which it knows of the pull, a runtime may show the image.
        request.before_visible.done().await?;
        let name = request.image.image.clone();
        let request = pb::PullImageRequest::from(request);
        // Only the caller ends a pull.
        let answer = repeated!(self, pull_image, request).await.map_err(|status| self.caller.error(&status))?;
        let image_ref = answer.into_inner().image_ref;
        if image_ref.is_empty() {
            return Err(Error::new(Kind::Internal, format!("imageRef of image {name:?} is not set")));
        }
        Ok(image_ref)
    }

    async fn remove_image(&self, image: &ImageSpec) -> Result<()> {
        // containerd 1.6 takes an empty name for the beginning of every id, and removes the only image that there is.
        if image.image.is_empty() {
            return Err(Error::new(Kind::InvalidArgument, "no image is specified"));
        }
        let request = pb::RemoveImageRequest { image: Some(image.clone().into()) };
        self.caller.timed("RemoveImage", repeated!(self, remove_image, request)).await?;
        Ok(())
    }

    async fn image_fs_info(&self) -> Result<FsInfo> {
        let request = pb::ImageFsInfoRequest {};
        let answer = self.caller.timed("ImageFsInfo", repeated!(self, image_fs_info, request)).await?;
        if let Some(path) = answer.metadata().get(ADMIN_SOCKET) {
            let instance = answer.metadata().get(INSTANCE).and_then(|value| value.to_str().ok()).unwrap_or_default();
            self.agent.get_or_init(|| AgentAddress {
                socket: PathBuf::from(OsStr::from_bytes(path.as_bytes())),
                instance: instance.to_owned(),
            });
        }
        Ok(answer.into_inner().into())
    }
}

impl fmt::Debug for RemoteImageService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteImageService").field(self.endpoint()).finish()
    }
}
