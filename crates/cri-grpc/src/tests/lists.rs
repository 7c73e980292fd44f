//! Lists: streamed, whole, larger than one message, and from peers that do not know streams.

use std::sync::Arc;

use async_trait::async_trait;
use cri_api::{FsInfo, Image, ImageFilter, ImageService, ImageSpec, ImageStatus, Kind, PullImageRequest, Result};
use tonic::Status;

use super::support::{Answers, Running, answers, soon};
use crate::client::{ClientOptions, RemoteImageService, connect_image_service};
use crate::server::ServerOptions;
use crate::{MAX_MESSAGE_BYTES, pb};

/// A service that has many images, and nothing else.
struct Many(Vec<Image>);

#[async_trait]
impl ImageService for Many {
    async fn list_images(&self, _: Option<&ImageFilter>) -> Result<Vec<Image>> {
        Ok(self.0.clone())
    }
    async fn image_status(&self, _: &ImageSpec, _: bool) -> Result<ImageStatus> {
        Ok(ImageStatus::default())
    }
    async fn pull_image(&self, _: PullImageRequest) -> Result<String> {
        Ok(String::new())
    }
    async fn remove_image(&self, _: &ImageSpec) -> Result<()> {
        Ok(())
    }
    async fn image_fs_info(&self) -> Result<FsInfo> {
        Ok(FsInfo::default())
    }
}

fn image(number: usize, name_bytes: usize) -> Image {
    Image { id: format!("sha256:{number:064}"), repo_tags: vec!["t".repeat(name_bytes)], size: 1, ..Image::default() }
}

async fn client_of(images: &[Image], options: ClientOptions) -> (Running, RemoteImageService) {
    let server = Running::with(ServerOptions::new(Arc::new(Many(images.to_vec())), "1"));
    let client = server.client_with(options).await;
    (server, client)
}

#[tokio::test]
async fn list_above_the_message_limit_is_streamed() {
    let images: Vec<Image> = (0..20_000).map(|n| image(n, 1000)).collect();
    assert!(images.iter().map(|i| i.repo_tags[0].len()).sum::<usize>() > MAX_MESSAGE_BYTES);
    let (_server, client) = client_of(&images, ClientOptions::default()).await;
    assert_eq!(soon(client.list_images(None)).await.unwrap(), images);
    assert!(client.streams_lists());

    let whole = ClientOptions { stream_lists: false, ..ClientOptions::default() };
    let (_server, client) = client_of(&images, whole).await;
    let error = soon(client.list_images(None)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::ResourceExhausted, "{error}");
    // The connection is still good.
    soon(client.image_fs_info()).await.unwrap();
}

#[tokio::test]
async fn batches_are_cut_by_size() {
    // Empty, one, one that is larger than a batch between small ones, and enough for several batches.
    let large = [image(1, 10), image(2, 3 * 1024 * 1024), image(3, 10)];
    let several: Vec<Image> = (0..300).map(|n| image(n, 10_000)).collect();
    for images in [&[] as &[Image], &large[..1], &large, &several] {
        let (_server, client) = client_of(images, ClientOptions::default()).await;
        assert_eq!(soon(client.list_images(None)).await.unwrap(), images);
        assert!(client.streams_lists());
    }
}

#[tokio::test]
async fn no_batch_is_empty_or_large() {
    use futures::StreamExt as _;
    let several: Vec<pb::Image> = (0..300).map(|n| image(n, 10_000).into()).collect();
    let messages = crate::server::batches(several, |images| pb::StreamImagesResponse { images });
    let messages: Vec<_> = messages.map(|m| m.unwrap()).collect().await;
    assert_eq!(messages.iter().map(|m| m.images.len()).sum::<usize>(), 300);
    assert!((3..=5).contains(&messages.len()), "{}", messages.len());
    for message in messages {
        let bytes = prost::Message::encoded_len(&message);
        assert!(!message.images.is_empty() && bytes <= 1024 * 1024, "{bytes}");
    }
}

#[tokio::test]
async fn streamed_lists_are_probed_once() {
    let list = vec![pb::Image { id: "sha256:1".into(), size: 1, ..Default::default() }];
    let peer = Answers { list: Some(list), ..answers() };
    let raw = peer.serve();
    let client = soon(connect_image_service(&raw.endpoint, ClientOptions::default())).await.unwrap();
    assert!(client.streams_lists());
    for _ in 0..3 {
        assert_eq!(soon(client.list_images(None)).await.unwrap().len(), 1);
        // A clone knows it, too.
        assert_eq!(soon(client.clone().list_images(None)).await.unwrap().len(), 1);
    }
    assert!(!client.streams_lists());
    let mut want = vec!["ImageFsInfo", "StreamImages"];
    want.extend(["ListImages"; 6]);
    assert_eq!(peer.calls(), want);
}

#[tokio::test]
async fn unimplemented_in_the_trailers_counts_as_well() {
    let peer =
        Answers { list: Some(Vec::new()), stream: Some(vec![Err(Status::unimplemented("not today"))]), ..answers() };
    let raw = peer.serve();
    let client = soon(connect_image_service(&raw.endpoint, ClientOptions::default())).await.unwrap();
    assert_eq!(soon(client.list_images(None)).await.unwrap(), []);
    assert!(!client.streams_lists());
}

#[tokio::test]
async fn truncated_stream_is_an_error() {
    let batch = vec![pb::Image { id: "sha256:1".into(), size: 1, ..Default::default() }];
    let peer = Answers {
        list: Some(Vec::new()),
        stream: Some(vec![Ok(batch), Err(Status::internal("disk gone"))]),
        ..answers()
    };
    let raw = peer.serve();
    let client = soon(connect_image_service(&raw.endpoint, ClientOptions::default())).await.unwrap();
    let error = soon(client.list_images(None)).await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (Kind::Internal, "disk gone"));
    assert!(client.streams_lists());
    assert!(!peer.calls().contains(&"ListImages"), "{:?}", peer.calls());
}

#[tokio::test]
async fn the_filter_arrives() {
    use cri_api::testing::{Call, FakeImageService};
    let fake = FakeImageService::new();
    let server = Running::fake(&fake);
    for stream_lists in [true, false] {
        let client = server.client_with(ClientOptions { stream_lists, ..ClientOptions::default() }).await;
        fake.forget_calls();
        let filter = ImageFilter { image: Some(ImageSpec::new("abc")) };
        soon(client.list_images(Some(&filter))).await.unwrap();
        soon(client.list_images(Some(&ImageFilter::default()))).await.unwrap();
        assert_eq!(fake.calls(), [Call::ListImages(Some("abc".into())), Call::ListImages(None)]);
    }
}
