//! Uploads to Debian's docker-registry: blobs, mounts and manifests, with a user name and a password, and their
//! failures.

use std::sync::Arc;

use bytes::Bytes;
use oci::{Descriptor, Digest, RegistryAuth};
use registry::testing::ImageBuilder;
use registry::{BlobUpload, ErrorKind, Repository, UploadStream};

use crate::real::start;
use crate::support::{client, noise, reference};

/// A blob in two pieces.
fn blob(descriptor: Descriptor, bytes: Bytes) -> BlobUpload {
    let open = move || -> UploadStream {
        let (first, second) = (bytes.slice(..bytes.len() / 2), bytes.slice(bytes.len() / 2..));
        Box::pin(futures::stream::iter([Ok(first), Ok(second)]))
    };
    BlobUpload { descriptor, open: Arc::new(open) }
}

fn of(bytes: &Bytes) -> BlobUpload {
    blob(Descriptor::new("", Digest::sha256(bytes), bytes.len() as u64), bytes.clone())
}

fn session(host: &str, name: &str) -> Repository {
    let auth = RegistryAuth::basic("ada", "swordfish");
    client().repository(&reference(&format!("{host}/{name}")), Some(auth)).expect("hosts")
}

#[tokio::test]
#[ignore = "needs docker-registry: scripts/test.sh"]
async fn image_is_uploaded_and_mounted() {
    let registry = start(true);
    let repository = session(&registry.host, "up/app:1");
    let image = ImageBuilder::tiny("a");
    for (digest, bytes) in image.blobs() {
        assert_eq!(Digest::sha256(&bytes), digest);
        repository.upload_blob(&of(&bytes)).await.expect("uploaded");
    }
    let media_type = &image.descriptor.media_type;
    let digest = repository.put_manifest("1", media_type, image.manifest.clone()).await.expect("pushed");
    assert_eq!(digest, image.descriptor.digest);
    assert_eq!(repository.resolve().await.expect("resolves").bytes, image.manifest);

    let other = session(&registry.host, "other/app:1");
    for (digest, _) in image.blobs() {
        assert!(other.mount_blob(&digest, "up/app").await.expect("answers"));
    }
    assert!(!other.mount_blob(&Digest::sha256(b"none"), "up/app").await.expect("answers"));
    other.put_manifest(&digest.to_string(), media_type, image.manifest.clone()).await.expect("pushed by digest");
    // Large enough for many pieces, small enough for a test.
    let large = noise(8 << 20);
    other.upload_blob(&of(&large)).await.expect("uploaded");
    other.check_access().await.expect("let in");
}

#[tokio::test]
#[ignore = "needs docker-registry: scripts/test.sh"]
async fn mismatching_uploads_are_refused() {
    let registry = start(true);
    let repository = session(&registry.host, "up/app:1");
    let bytes = Bytes::from_static(b"some bytes");
    for (what, descriptor) in [
        ("another digest", Descriptor::new("", Digest::sha256(b"other"), 10)),
        ("too short", Descriptor::new("", Digest::sha256(&bytes), 11)),
        ("too long", Descriptor::new("", Digest::sha256(&bytes), 9)),
    ] {
        repository.upload_blob(&blob(descriptor, bytes.clone())).await.expect_err(what);
    }
    let image = ImageBuilder::tiny("a");
    let error = repository.put_manifest("1", &image.descriptor.media_type, image.manifest.clone()).await;
    assert!(error.expect_err("blobs are missing").to_string().contains("push manifest 1"));
    let wrong = RegistryAuth::basic("ada", "guessed");
    let stranger = client().repository(&reference(&format!("{}/up/app:1", registry.host)), Some(wrong));
    let stranger = stranger.expect("hosts");
    let error = stranger.upload_blob(&of(&bytes)).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert_eq!(stranger.check_access().await.expect_err("refused").kind(), ErrorKind::Unauthenticated);
}
