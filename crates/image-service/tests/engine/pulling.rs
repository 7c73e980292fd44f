//! Pulls that come to a good end: every form of layer, names, what is asked of the registry.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cri_api::{BeforeVisible, Error, ImageService as _, Kind, LayerState, PullEvent, PullImageRequest};
use oci::{Digest, RegistryAuth};
use registry::testing::{
    Auth, BuiltLayer, Compression, Fault, ImageBuilder, LayerBuilder, Options, TestRegistry, TestTls,
};

use crate::support::{Node, Watch, blob, image, layer, noise};

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(data).and_then(|()| encoder.finish()).expect("writing to memory does not fail")
}

/// The layer's tar stream in another compressed form.
fn recompressed(layer: &BuiltLayer, blob: Vec<u8>, compression: Compression) -> BuiltLayer {
    LayerBuilder::from_blob(blob, layer.diff_id.clone(), compression)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_form_of_layer() {
    let node = Node::start().await;
    let content = noise(1, 700_000);
    let base = LayerBuilder::new().dir("data/").file("data/noise", content.clone()).build();
    let members: Vec<u8> = base.tar.chunks(100_000).flat_map(gzip).collect();
    let frames: Vec<u8> = base.tar.chunks(100_000).flat_map(|c| zstd::encode_all(c, 3).unwrap()).collect();
    let forms: Vec<(&str, BuiltLayer)> = vec![
        ("gzip", base.clone()),
        ("zstd", recompressed(&base, zstd::encode_all(&base.tar[..], 3).unwrap(), Compression::Zstd)),
        ("plain", recompressed(&base, base.tar.to_vec(), Compression::Plain)),
        ("members", recompressed(&base, members, Compression::Gzip)),
        ("frames", recompressed(&base, frames, Compression::Zstd)),
        // The media type lies, as docker's often do.
        ("lying", recompressed(&base, base.tar.to_vec(), Compression::Gzip)),
    ];
    for (form, layer) in forms {
        let image = image().layer(layer).label("form", form).build();
        node.registry.push(form, "v1", &image);
        let id = node.pull(&format!("{form}:v1")).await.expect(form);
        assert_eq!(id, image.id().to_string());
        assert_eq!(node.file(&id, "data/noise"), Some(content.clone()), "{form}");
        node.engine.remove_image(&id.as_str().into()).await.expect("removes");
    }
    node.check_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_with_nothing_in_them_and_with_more_than_the_archive() {
    let node = Node::start().await;
    let empty = LayerBuilder::from_blob(Vec::new(), Digest::sha256(b""), Compression::Gzip);
    let no_entries = LayerBuilder::new().build();
    let trailing = LayerBuilder::new().dir("a/").file("a/b", "c").trailing(&noise(3, 3000)).build();
    let unfinished = LayerBuilder::new().dir("d/").file("d/e", "f").without_end().build();
    let image =
        image().layer(empty).layer(no_entries.clone()).layer(trailing).layer(unfinished).layer(no_entries).build();
    node.registry.push("odd", "v1", &image);
    let id = node.pull("odd:v1").await.expect("pulls");
    assert_eq!(node.file(&id, "a/b").as_deref(), Some(&b"c"[..]));
    assert_eq!(node.file(&id, "d/e").as_deref(), Some(&b"f"[..]));
    // The layer that is there twice came once.
    assert_eq!(node.registry.requests_for(&blob(&image, 1).to_string()).len(), 1);
    node.check_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_without_layers() {
    let node = Node::start().await;
    let image = image().build();
    node.registry.push("none", "v1", &image);
    assert_eq!(node.pull("none:v1").await.expect("pulls"), image.id().to_string());
    assert!(node.status("none:v1").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn tag_and_digest_are_recorded_as_cri_wants_them() {
    let node = Node::start().await;
    let image = image().docker().layer(layer("etc/a", 1, 10)).user("1002").build();
    let digest = node.registry.push("repo/app", "v1", &image);
    let id = node.pull(&format!("repo/app@{digest}")).await.expect("pulls");
    let status = node.status(&format!("repo/app@{digest}")).await.expect("is there");
    assert_eq!((status.id.as_str(), status.uid), (id.as_str(), Some(1002)));
    assert!(status.repo_tags.is_empty());
    assert_eq!(status.repo_digests, [node.name(&format!("repo/app@{digest}"))]);
    node.pull("repo/app:v1").await.expect("pulls");
    // A digest with a tag before it: the tag is dropped.
    node.pull(&format!("repo/app:other@{digest}")).await.expect("pulls");
    let status = node.status("repo/app:v1").await.expect("is there");
    assert_eq!(status.repo_tags, [node.name("repo/app:v1")]);
    assert_eq!(status.repo_digests, [node.name(&format!("repo/app@{digest}"))]);
    let verbose = node.engine.image_status(&id.as_str().into(), true).await.expect("a status");
    let info: serde_json::Value = serde_json::from_str(&verbose.info["info"]).expect("JSON");
    assert_eq!(info["chainID"], image.layers[0].diff_id.to_string());
    assert_eq!(info["imageSpec"]["config"]["User"], "1002");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_pull_is_four_kinds_of_requests_and_tells_its_progress() {
    let node = Node::start().await;
    let image = image().layer(layer("a/x", 1, 600_000)).layer(layer("b/y", 2, 100)).build();
    node.registry.push("app", "v1", &image);
    let watch = Watch::default();
    let name = node.name("app:v1");
    let request = PullImageRequest { progress: watch.sink(), ..PullImageRequest::new(name) };
    node.engine.pull_image(request).await.expect("pulls");
    assert_eq!(node.registry.requests_for("/manifests/").len(), 1);
    assert_eq!(node.registry.requests_for("/blobs/").len(), 3);
    let events = watch.events();
    let layers = image.layers.iter().map(|l| (l.descriptor.digest.clone(), l.descriptor.size)).collect();
    assert_eq!(events[..2], [PullEvent::Resolving, PullEvent::Resolved { digest: image.digest().clone(), layers }]);
    assert_eq!(events.last(), Some(&PullEvent::Committing));
    for layer in &image.layers {
        let (digest, size) = (&layer.descriptor.digest, layer.descriptor.size);
        let states: Vec<LayerState> = events
            .iter()
            .filter_map(|e| match e {
                PullEvent::Layer { digest: d, state } if d == digest => Some(*state),
                _ => None,
            })
            .collect();
        assert_eq!(states.first(), Some(&LayerState::Waiting));
        assert_eq!(states.last(), Some(&LayerState::Done));
        assert!(events.contains(&PullEvent::Bytes { digest: digest.clone(), done: size }), "{events:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_must_be_done_before_an_image_appears_is_done_by_pulls_that_bring_something() {
    let node = Node::start().await;
    let image = image().layer(layer("a/x", 1, 1000)).build();
    node.registry.push("app", "v1", &image);
    node.registry.push("app", "v2", &image);
    let done = Arc::new(AtomicUsize::new(0));
    let pull = |tag: &str, error: Option<Error>| {
        let counted = Arc::clone(&done);
        let before_visible = BeforeVisible::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            std::future::ready(error.clone().map_or(Ok(()), Err))
        });
        node.engine.pull_image(PullImageRequest { before_visible, ..PullImageRequest::new(node.name(tag)) })
    };
    let seen = |tag: &str| {
        let spec = cri_api::ImageSpec::new(node.name(tag));
        let engine = node.engine.clone();
        async move { engine.image_status(&spec, false).await.expect("a status").image.is_some() }
    };
    let error = pull("app:v1", Some(Error::new(Kind::Internal, "no ink"))).await.expect_err("not allowed");
    assert!(error.message().ends_with("no ink"), "{error}");
    assert!(!seen("app:v1").await);
    node.engine.settled().await;
    node.check_clean().await;
    done.store(0, Ordering::Relaxed);
    for (tag, times) in [("app:v1", 1), ("app:v1", 1), ("app:v2", 2), ("app:v2", 2)] {
        pull(tag, None).await.expect("pulls");
        assert!(seen(tag).await);
        assert_eq!(done.load(Ordering::Relaxed), times, "{tag}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_that_pass_are_overcome() {
    let node = Node::start().await;
    let image = image().layer(layer("a/x", 1, 900_000)).build();
    node.registry.push("app", "v1", &image);
    let faults = node.registry.faults();
    faults.times("/manifests/", 2, Fault::status(500));
    let path = format!("/blobs/{}", blob(&image, 0));
    faults.once(&path, Fault::status(503));
    faults.once(&path, Fault::Reset { after: 300_000 });
    let id = node.pull("app:v1").await.expect("pulls");
    assert_eq!(node.file(&id, "a/x"), Some(noise(1, 900_000)));
    assert_eq!(faults.left(), 0, "every fault was met");
    node.check_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_with_damaged_bytes_gives_way_to_the_registry() {
    let node = Node::start().await;
    let mirror = TestRegistry::open().await;
    let image = image().layer(layer("a/x", 1, 400_000)).build();
    node.registry.push("app", "v1", &image);
    mirror.push("app", "v1", &image);
    mirror.faults().always(&format!("/blobs/{}", blob(&image, 0)), Fault::Corrupt);
    node.hosts_toml(&format!("server = \"{}\"\n[host.\"{}\"]\n", node.registry.url(), mirror.url()));
    let id = node.pull("app:v1").await.expect("pulls");
    assert_eq!(node.file(&id, "a/x"), Some(noise(1, 400_000)));
    let asked = |registry: &TestRegistry| registry.requests_for(&blob(&image, 0).to_string()).len();
    assert_eq!((asked(&mirror), asked(&node.registry)), (1, 1));
    assert!(node.registry.requests_for("/manifests/").is_empty(), "the mirror resolved");
    node.check_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_decide_and_are_not_reported() {
    let node = Node::start().await;
    let auth = Auth::Basic { user: "ada".into(), password: "swordfish".into() };
    let private = TestRegistry::start(Options { auth: Some(auth), ..Options::default() }).await;
    private.push("app", "v1", &ImageBuilder::tiny("private"));
    let request = |auth: Option<RegistryAuth>| PullImageRequest {
        auth,
        ..PullImageRequest::new(format!("{}/app:v1", private.host()))
    };
    for auth in [None, Some(RegistryAuth::basic("ada", "hunter2"))] {
        let error = node.engine.pull_image(request(auth)).await.expect_err("refused");
        assert_eq!(error.kind(), Kind::Unauthenticated, "{error}");
        assert!(!error.message().contains("hunter2"), "{error}");
    }
    let good = Some(RegistryAuth::basic("ada", "swordfish"));
    node.engine.pull_image(request(good)).await.expect("pulls");
    // Being here is no right to have it.
    let error = node.engine.pull_image(request(None)).await.expect_err("refused");
    assert_eq!(error.kind(), Kind::Unauthenticated, "{error}");
}

#[tokio::test(start_paused = true)]
async fn options_of_the_engine_reach_the_registry_client() {
    let storage = TestRegistry::open().await;
    let allowed = storage.url().parse().expect("a target");
    let node = Node::with(|options| {
        options.allowed_targets = vec![allowed];
        options.bandwidth = registry::Bandwidth::new(1 << 20);
    })
    .await;
    let strict = Node::start().await;
    let image = image().layer(layer("a/x", 1, 1 << 20)).build();
    let secure = TestRegistry::start(Options { tls: TestTls::On, ..Options::default() }).await;
    secure.push("app", "v1", &image);
    storage.push("app", "v1", &image);
    // A registry in HTTPS with its blobs in plain HTTP.
    secure.faults().always("/blobs/", Fault::RedirectTo { base: storage.url() });
    let pull = async |node: &Node| {
        let directory = node.directory.path().join("certs.d").join(secure.host());
        std::fs::create_dir_all(&directory).expect("creates");
        std::fs::write(directory.join("ca.pem"), registry::testing::ca_pem()).expect("writes");
        let text = format!("server = \"{}\"\nca = \"ca.pem\"\n", secure.url());
        std::fs::write(directory.join("hosts.toml"), text).expect("writes");
        node.engine.pull_image(PullImageRequest::new(format!("{}/app:v1", secure.host()))).await
    };
    let error = pull(&strict).await.expect_err("refused");
    assert!(error.message().contains("redirect refused: from HTTPS to plain HTTP"), "{error}");
    let start = tokio::time::Instant::now();
    pull(&node).await.expect("allowed");
    // The setting is a rate: less than a second for 1 MiB, since the last pieces are not waited for.
    assert!(start.elapsed().as_secs_f64() > 0.4, "{:?}", start.elapsed());
}
