//! Contents that must not become an image, and their errors. After each, the store is as it was.

use cri_api::{ImageService as _, ImageSpec, Kind, LayerState, PullImageRequest};
use image_service::OpenError;
use oci::{Digest, Reference};
use registry::testing::{BuiltImage, Compression, Fault, LayerBuilder, TestRegistry, schema1_manifest};
use serde_json::json;
use store::LayerFormat;

use crate::support::{Node, blob, image, layer, noise, options};

async fn refused(node: &Node, image: &BuiltImage, kind: Kind, words: &[&str]) {
    node.registry.push("bad", "v1", image);
    let error = node.pull("bad:v1").await.expect_err("refused");
    assert_eq!(error.kind(), kind, "{error}");
    for word in words {
        assert!(error.message().contains(word), "{error} has no {word:?}");
    }
    assert!(!error.message().contains('\n'), "{error}");
    assert!(node.status("bad:v1").await.is_none());
    node.check_clean().await;
    assert!(node.entries("layers").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_not_the_blob() {
    let node = Node::start().await;
    let image = image().layer(layer("a/x", 1, 300_000)).layer(layer("b/y", 2, 300_000)).build();
    let digest = blob(&image, 1).to_string();
    let faults = [
        Fault::Corrupt,
        Fault::TooLong,
        Fault::TooLongChunked,
        Fault::TooShort,
        Fault::Html,
        Fault::Truncate { after: 1000 },
    ];
    for fault in faults {
        let what = format!("{fault:?}");
        node.registry.faults().clear();
        node.registry.faults().always(&format!("/blobs/{digest}"), fault);
        node.registry.push("bad", "v1", &image);
        let error = node.pull("bad:v1").await.expect_err(&what);
        assert!(matches!(error.kind(), Kind::DataLoss | Kind::Unavailable), "{what}: {} {error}", error.kind());
        assert!(error.message().contains(&digest), "{what}: {error}");
        assert!(node.status("bad:v1").await.is_none(), "{what}");
        node.check_clean().await;
        assert!(node.entries("layers").is_empty(), "{what}");
    }
    node.registry.faults().clear();
    node.pull("bad:v1").await.expect("nothing stands in the way any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn digests_and_numbers_that_do_not_fit_the_config() {
    let node = Node::start().await;
    let one = || layer("a/x", 1, 1000).build();
    let other = Digest::sha256(b"other");
    let wrong = image().layer(one()).diff_ids(vec![other.clone()]).build();
    refused(&node, &wrong, Kind::DataLoss, &["diff id mismatch", &other.to_string(), &one().diff_id.to_string()]).await;
    let fewer = image().layer(one()).diff_ids(vec![]).build();
    refused(&node, &fewer, Kind::DataLoss, &["the manifest has 1 layers and the config has 0 diff ids"]).await;
    let more = image().layer(one()).diff_ids(vec![one().diff_id, other]).build();
    refused(&node, &more, Kind::DataLoss, &["1 layers", "2 diff ids"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn types_that_are_not_supported() {
    let node = Node::start().await;
    let of_type = |media_type: &str| image().layer(layer("a/x", 1, 100).media_type(media_type)).build();
    for media_type in ["application/vnd.erofs.layer.v1", "application/vnd.oci.image.layer.v1.tar+xz"] {
        refused(&node, &of_type(media_type), Kind::InvalidArgument, &["layer 1 of 1", media_type]).await;
    }
    let encrypted = "application/vnd.oci.image.layer.v1.tar+gzip+encrypted";
    refused(&node, &of_type(encrypted), Kind::InvalidArgument, &[encrypted, "encrypted layers are not supported"])
        .await;
    let artifact = image().config_media_type("application/vnd.example.thing+json").build();
    refused(&node, &artifact, Kind::InvalidArgument, &["not a container image", "vnd.example.thing"]).await;
    assert!(node.registry.requests_for("/blobs/").is_empty(), "nothing was fetched for any of them");
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_that_cannot_be_read() {
    let node = Node::start().await;
    let of_blob =
        |bytes: Vec<u8>| image().layer(LayerBuilder::from_blob(bytes, Digest::sha256(b""), Compression::Gzip)).build();
    let xz = [&[0xfd, b'7', b'z', b'X', b'Z', 0][..], &noise(1, 100)].concat();
    refused(&node, &of_blob(xz), Kind::InvalidArgument, &["compressed with xz"]).await;
    refused(&node, &of_blob(b"BZh91AY&SY0000".to_vec()), Kind::InvalidArgument, &["compressed with bzip2"]).await;
    let cut = layer("a/x", 1, 5000).build();
    refused(&node, &of_blob(cut.blob[..3000].to_vec()), Kind::DataLoss, &["inflate the gzip stream"]).await;
    let garbage = [&cut.blob[..], b"garbage"].concat();
    refused(&node, &of_blob(garbage), Kind::DataLoss, &["inflate the gzip stream"]).await;
    refused(&node, &of_blob(noise(7, 2000)), Kind::DataLoss, &["malformed layer"]).await;
}

/// Layers that have their digest and cannot be decoded: small ones and such that are unpacked while they arrive, damaged in the
/// compression, in the archive, and in the archive within the compression.
fn damaged_layers() -> Vec<(&'static str, BuiltImage)> {
    let of_blob = |bytes: Vec<u8>, compression| {
        image().layer(LayerBuilder::from_blob(bytes, Digest::sha256(b""), compression)).build()
    };
    let mut cases = Vec::new();
    for size in [20_000, 3_000_000] {
        let good = layer("a/x", 1, size).build();
        cases.push(("a cut gzip stream", of_blob(good.blob[..size / 2].to_vec(), Compression::Gzip)));
        cases.push(("a cut archive", of_blob(good.tar[..size / 2].to_vec(), Compression::Plain)));
        cases.push(("no archive", of_blob(noise(7, size), Compression::Plain)));
        // An archive that is malformed in front, with much behind it that the other side has not verified by then.
        let malformed = [&[b'x'; 1024][..], &good.tar].concat();
        cases.push(("a malformed archive in front", of_blob(malformed, Compression::Plain)));
    }
    cases
}

/// The fault is the image's own: no other host is asked, and the error does not blame one.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_layer_with_the_right_digest_is_fetched_once() {
    for (what, image) in damaged_layers() {
        let node = Node::start().await;
        let mirrors = [TestRegistry::open().await, TestRegistry::open().await];
        let mut hosts = format!("server = \"{}\"\n", node.registry.url());
        for mirror in &mirrors {
            mirror.push("bad", "v1", &image);
            hosts += &format!("[host.\"{}\"]\n", mirror.url());
        }
        node.hosts_toml(&hosts);
        let digest = blob(&image, 0).to_string();
        let words = ["the image itself is damaged", &digest];
        refused(&node, &image, Kind::DataLoss, &words).await;
        let all = mirrors.iter().chain([&node.registry]);
        let fetched: usize = all.map(|registry| registry.requests_for(&format!("/blobs/{digest}")).len()).sum();
        assert_eq!(fetched, 1, "{what}");
    }
}

/// Wrong bytes of a mirror may look like any damage: the registry is asked.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_bytes_that_are_no_archive_are_the_hosts_fault() {
    for compression in [Compression::Plain, Compression::Gzip] {
        for size in [20_000, 3_000_000] {
            let node = Node::start().await;
            let mirror = TestRegistry::open().await;
            let good = image().layer(layer("a/x", 1, size).compression(compression)).build();
            let body = "x".repeat(good.layers[0].blob.len());
            for registry in [&mirror, &node.registry] {
                registry.push("app", "v1", &good);
            }
            let wrong = Fault::Status { code: 200, headers: Vec::new(), body };
            mirror.faults().always(&format!("/blobs/{}", blob(&good, 0)), wrong);
            node.hosts_toml(&format!("server = \"{}\"\n[host.\"{}\"]\n", node.registry.url(), mirror.url()));
            node.pull("app:v1").await.expect("the registry has it right");
            let asked = |registry: &TestRegistry| registry.requests_for(&blob(&good, 0).to_string()).len();
            assert_eq!((asked(&mirror), asked(&node.registry)), (1, 1), "{compression:?} {size}");
            node.check_clean().await;
        }
    }
}

/// A pull that waits for another one's layer does not fetch a damaged one again.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_layer_is_not_fetched_again_for_those_that_wait() {
    let node = Node::start().await;
    let (_, image) = damaged_layers().pop().expect("one");
    let digest = blob(&image, 0);
    for tag in ["one", "two"] {
        node.registry.push("bad", tag, &image);
    }
    node.registry.faults().always(&format!("/blobs/{digest}"), Fault::HangAfter { after: 100 });
    let (first, watch) = node.start_pull("bad:one");
    watch.until_layer(&digest, LayerState::Fetching).await;
    let (second, watch) = node.start_pull("bad:two");
    watch.until_layer(&digest, LayerState::WaitingForOther).await;
    node.registry.faults().clear();
    for pull in [first, second] {
        let error = pull.await.expect("no panic").expect_err("damaged");
        assert!(error.message().contains("the image itself is damaged"), "{error}");
    }
    assert_eq!(node.registry.requests_for(&format!("/blobs/{digest}")).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_beyond_the_limits() {
    let node = Node::with(|options| options.store.limits.layer_bytes = 1_000_000).await;
    refused(&node, &image().layer(layer("a/x", 1, 2_000_000)).build(), Kind::InvalidArgument, &["1000000"]).await;
    let bomb = LayerBuilder::new().dir("a/").file("a/zeros", vec![0; 40_000_000]);
    refused(&node, &image().layer(bomb).build(), Kind::InvalidArgument, &["1000000"]).await;
}

/// A layer of empty files, `prefix` in front of their names.
fn empty_files(prefix: &str, count: usize) -> LayerBuilder {
    let all = LayerBuilder::new().dir("a/").compression(Compression::Zstd);
    (0..count).fold(all, |layer, n| layer.file(&format!("a/{prefix}{n:05}"), Vec::new()))
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_limited_in_proportion_to_fetched_bytes() {
    for format in [LayerFormat::Dir, LayerFormat::Erofs] {
        let node = Node::with(|options| {
            options.store.layer_format = format;
            (options.limits.entries_free, options.limits.inflate_free) = (300, 1 << 20);
        })
        .await;
        // Of 2,000 files in some kilobytes no more are made than 300 or one for each 87 bytes.
        let many = image().layer(empty_files("", 2000)).build();
        let size = many.layers[0].blob.len();
        let most = (size as u64 * 1500 / (128 << 10)).max(300);
        assert!(most < 1000, "{size} bytes");
        let words = [&*format!("the layer of {size} compressed bytes has {} entries", most + 1), "over the limit of"];
        refused(&node, &many, Kind::InvalidArgument, &words).await;
        // Layers of which each is small enough, and not all together.
        let layers = (0..4).fold(image(), |image, n| image.layer(empty_files(&format!("{n}-"), 250)));
        let words = ["the limit of entries in all layers of an image", "is 300"];
        refused(&node, &layers.build(), Kind::InvalidArgument, &words).await;
        node.registry.push("few", "v1", &image().layer(empty_files("", 250)).build());
        node.pull("few:v1").await.expect("so many are always taken");
        let big = image().layer(empty_files("", 2000).file("a/noise", noise(1, 400_000))).build();
        node.registry.push("big", "v1", &big);
        node.pull("big:v1").await.expect("the files are in proportion to the rest");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_has_no_more_entries_than_two_layers_may_have() {
    let node = Node::with(|options| options.store.limits.entries = 400).await;
    let of = |layers: usize| {
        let files = |n: usize| empty_files(&format!("{n}-"), 300).compression(Compression::Plain);
        (0..layers).fold(image(), |image, n| image.layer(files(n))).build()
    };
    let words = ["the limit of entries in all layers of an image", "is 800, and there are 903"];
    refused(&node, &of(3), Kind::InvalidArgument, &words).await;
    node.registry.push("two", "v1", &of(2));
    node.pull("two:v1").await.expect("two layers");
}

#[tokio::test(flavor = "multi_thread")]
async fn images_beyond_the_limits() {
    // Gzip cannot make so much of so little; zstd can.
    let zeros = || LayerBuilder::new().dir("a/").file("a/zeros", vec![0; 70_000_000]);
    let node =
        Node::with(|options| (options.limits.image_bytes, options.limits.inflate_free) = (75_000_000, 64 << 20)).await;
    let bomb = zeros().compression(Compression::Zstd);
    refused(&node, &image().layer(bomb).build(), Kind::InvalidArgument, &["uncompressed bytes", "67108864"]).await;
    let two = image().layer(zeros()).layer(layer("b/x", 1, 6_000_000)).build();
    refused(&node, &two, Kind::InvalidArgument, &["limit of bytes in all layers", "75000000", "76000000"]).await;
    node.registry.push("zeros", "v1", &image().layer(zeros()).build());
    node.pull("zeros:v1").await.expect("as much as gzip can make");

    let small = image().layer(layer("a/x", 1, 10)).build();
    let three = (0..3).fold(image(), |image, seed| image.layer(layer("a/x", seed, 10))).build();
    let node = Node::with(|options| options.limits.image_layers = 2).await;
    refused(&node, &three, Kind::InvalidArgument, &["limit of layers in an image is 2, and it has 3"]).await;
    let node = Node::with(|options| options.limits.manifest_bytes = 200).await;
    refused(&node, &small, Kind::DataLoss, &["200"]).await;
    let node = Node::with(|options| options.limits.config_bytes = 100).await;
    refused(&node, &small, Kind::DataLoss, &["100"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_that_are_none() {
    let node = Node::start().await;
    let good = image().layer(layer("a/x", 1, 100)).build();
    node.registry.push("bad", "good", &good);
    let reference = Reference::parse("r.example/bad:v1").expect("a reference");
    let config = serde_json::to_value(&good.config_descriptor).expect("JSON");
    let both = json!({ "schemaVersion": 2, "manifests": [], "config": config, "layers": [] }).to_string();
    let index = "application/vnd.oci.image.index.v1+json";
    let manifest = "application/vnd.oci.image.manifest.v1+json";
    let cases: [(&str, Vec<u8>, &str); 4] = [
        (
            "application/vnd.docker.distribution.manifest.v1+prettyjws",
            schema1_manifest(&reference).to_vec(),
            "schema 1",
        ),
        (manifest, both.into_bytes(), "ambiguous"),
        (index, good.manifest.to_vec(), "ambiguous"),
        (manifest, b"<html>".to_vec(), "instead of a manifest"),
    ];
    for (media_type, bytes, word) in cases {
        let digest = node.registry.push_manifest("bad", media_type, bytes);
        node.registry.tag("bad", "v1", &digest);
        let error = node.pull("bad:v1").await.expect_err(word);
        assert!(matches!(error.kind(), Kind::InvalidArgument | Kind::DataLoss), "{word}: {} {error}", error.kind());
        assert!(error.message().contains(word), "{error}");
    }
    node.check_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn error_kinds_match_the_cause() {
    let node = Node::start().await;
    node.registry.push("app", "v1", &image().build());
    assert_eq!(node.pull("app:v2").await.expect_err("no tag").kind(), Kind::NotFound);
    assert_eq!(node.pull("none:v1").await.expect_err("no repository").kind(), Kind::NotFound);
    let pull = |name: &str| node.engine.pull_image(PullImageRequest::new(name));
    for bad in ["", "Upper/Case", "a b", "app:v1:v2", "app@sha256:12"] {
        assert_eq!(pull(bad).await.expect_err(bad).kind(), Kind::InvalidArgument, "{bad:?}");
    }
    node.registry.faults().always("/manifests/", Fault::rate_limited("7200"));
    assert_eq!(node.pull("app:v1").await.expect_err("limited").kind(), Kind::ResourceExhausted);
    node.registry.faults().clear();
    node.registry.faults().always("/manifests/", Fault::status(500));
    let error = node.pull("app:v1").await.expect_err("down");
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.message().starts_with("RegistryUnavailable: pull "), "{error}");
    let request = PullImageRequest {
        image: ImageSpec { runtime_handler: "kata".into(), ..ImageSpec::new(node.name("app:v1")) },
        ..PullImageRequest::default()
    };
    let error = node.engine.pull_image(request).await.expect_err("unknown handler");
    assert_eq!(error.kind(), Kind::InvalidArgument);
    assert!(error.message().contains("kata"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_hosts_file_fails_the_pull_and_is_read_again() {
    let node = Node::start().await;
    node.registry.push("app", "v1", &image().build());
    node.hosts_toml("server = \"http://127.0.0.1:1\"\nskip_verfy = true\n");
    let error = node.pull("app:v1").await.expect_err("broken");
    assert_eq!(error.kind(), Kind::FailedPrecondition);
    assert!(error.message().contains("hosts.toml") && error.message().contains("line 2: skip_verfy"), "{error}");
    assert!(node.registry.requests().is_empty());
    node.hosts_toml(&format!("server = \"{}\"\n", node.registry.url()));
    node.pull("app:v1").await.expect("mended");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_engine_is_refused_with_the_owner_of_the_store() {
    let node = Node::start().await;
    let second = image_service::Engine::open(options(node.directory.path())).await;
    let Err(OpenError::Store(error)) = second else { panic!("{second:?}") };
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    let none = image_service::EngineOptions { max_parallel_layers: 0, ..options(node.directory.path()) };
    assert!(matches!(image_service::Engine::open(none).await, Err(OpenError::Option { .. })));
}
