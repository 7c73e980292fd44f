//! Pulls that run at the same time: one job for one image, one fetch for one layer, and no pull fails when another is
//! cancelled.

use cri_api::{ImageService as _, Kind, LayerState, PullEvent, PullImageRequest};
use oci::{Digest, RegistryAuth};
use registry::testing::{BuiltLayer, Compression, Fault, LayerBuilder, TestRegistry};

use crate::support::{Node, Watch, blob, image, layer, noise};

fn path(digest: &Digest) -> String {
    format!("/blobs/{digest}")
}

fn is_bytes(digest: &Digest) -> impl Fn(&PullEvent) -> bool {
    let digest = digest.clone();
    move |event| matches!(event, PullEvent::Bytes { digest: d, .. } if *d == digest)
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_pulls_of_one_image_are_one() {
    let node = Node::start().await;
    let image = image().layer(layer("a/x", 1, 800_000)).layer(layer("b/y", 2, 800_000)).build();
    node.registry.push("app", "v1", &image);
    let held = path(&blob(&image, 0));
    node.registry.faults().once(&held, Fault::HangAfter { after: 500_000 });
    let (first, watch) = node.start_pull("app:v1");
    watch.until(is_bytes(&blob(&image, 0))).await;
    let mut rest: Vec<_> = (0..9).map(|_| node.start_pull("app:v1")).collect();
    for (_, watch) in &rest {
        // A late joiner receives the present state.
        watch.until(|event| matches!(event, PullEvent::Resolved { .. })).await;
        watch.until(is_bytes(&blob(&image, 0))).await;
    }
    assert_eq!(node.engine.in_flight().0, 1);
    // One of them is cancelled, and no other pull notices.
    rest.pop().expect("there are nine").0.abort();
    node.registry.faults().release();
    let id = first.await.expect("no panic").expect("pulls");
    for (pull, _) in rest {
        assert_eq!(pull.await.expect("no panic").expect("pulls"), id);
    }
    for digest in [&blob(&image, 0), &blob(&image, 1), image.id()] {
        assert_eq!(node.registry.requests_for(&digest.to_string()).len(), 1);
    }
    assert_eq!(node.registry.requests_for("/manifests/").len(), 1);
    node.check_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_of_two_images_is_fetched_once() {
    let node = Node::start().await;
    let base = layer("a/x", 1, 800_000).build();
    let digest = base.descriptor.digest.clone();
    for (name, seed) in [("one", 2), ("two", 3)] {
        let image = image().layer(base.clone()).layer(layer("b/y", seed, 1000)).build();
        node.registry.push(name, "v1", &image);
    }
    node.registry.faults().once(&path(&digest), Fault::HangAfter { after: 500_000 });
    let (one, watch) = node.start_pull("one:v1");
    watch.until(is_bytes(&digest)).await;
    let (two, watch) = node.start_pull("two:v1");
    watch.until_layer(&digest, LayerState::WaitingForOther).await;
    node.registry.faults().release();
    let one = one.await.expect("no panic").expect("pulls");
    let two = two.await.expect("no panic").expect("pulls");
    assert_eq!(node.asked_for(&digest), ["GET one", "HEAD two"]);
    for id in [one, two] {
        assert_eq!(node.file(&id, "a/x"), Some(noise(1, 800_000)));
    }
    assert!(watch.events().contains(&PullEvent::Layer { digest, state: LayerState::Done }));
    assert_eq!(node.entries("layers").len(), 3);
    node.check_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_waits_for_its_image_is_not_fetched_again() {
    let node = Node::start().await;
    let base = layer("a/x", 1, 800_000).build();
    let digest = base.descriptor.digest.clone();
    let one = image().layer(base.clone()).layer(layer("b/y", 2, 800_000)).build();
    node.registry.push("one", "v1", &one);
    node.registry.push("two", "v1", &image().layer(base).layer(layer("b/y", 3, 1000)).build());
    // The first image has its base, and not yet its other layer: nothing is committed.
    node.registry.faults().once(&path(&blob(&one, 1)), Fault::HangAfter { after: 500_000 });
    let (one, watch) = node.start_pull("one:v1");
    watch.until_layer(&digest, LayerState::Done).await;
    let (two, _) = node.start_pull("two:v1");
    let two = two.await.expect("no panic").expect("pulls");
    assert_eq!(node.file(&two, "a/x"), Some(noise(1, 800_000)));
    assert!(node.status("one:v1").await.is_none());
    node.registry.faults().release();
    let one = one.await.expect("no panic").expect("pulls");
    assert_eq!(node.file(&one, "a/x"), Some(noise(1, 800_000)));
    assert_eq!(node.asked_for(&digest), ["GET one", "HEAD two"]);
    assert_eq!(node.entries("layers").len(), 3);
    node.check_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_layer_keeps_it_when_the_other_leaves() {
    let node = Node::start().await;
    let base = layer("a/x", 1, 800_000).build();
    let digest = base.descriptor.digest.clone();
    for (name, seed) in [("one", 2), ("two", 3)] {
        let image = image().layer(base.clone()).layer(layer("b/y", seed, 1000)).build();
        node.registry.push(name, "v1", &image);
    }
    node.registry.faults().once(&path(&digest), Fault::HangAfter { after: 500_000 });
    let (one, watch) = node.start_pull("one:v1");
    watch.until(is_bytes(&digest)).await;
    let (two, watch) = node.start_pull("two:v1");
    watch.until_layer(&digest, LayerState::WaitingForOther).await;
    one.abort();
    assert!(one.await.expect_err("aborted").is_cancelled());
    node.registry.faults().release();
    let id = two.await.expect("no panic").expect("pulls");
    assert_eq!(node.file(&id, "a/x"), Some(noise(1, 800_000)));
    assert_eq!(node.asked_for(&digest), ["GET one", "HEAD two"], "its bytes were not thrown away");
    assert!(node.status("one:v1").await.is_none());
    node.check_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_layer_takes_over_when_the_other_fails() {
    let node = Node::start().await;
    let other = TestRegistry::open().await;
    let base = layer("a/x", 1, 800_000).build();
    let digest = base.descriptor.digest.clone();
    let one = image().layer(base.clone()).layer(layer("b/y", 2, 1000)).build();
    let two = image().layer(base.clone()).layer(layer("b/y", 3, 1000)).build();
    node.registry.push("one", "v1", &one);
    other.push("two", "v1", &two);
    // The first registry holds the blob back and then has lost it.
    node.registry.faults().always(&path(&digest), Fault::Hang);
    let (first, watch) = node.start_pull("one:v1");
    watch.until_layer(&digest, LayerState::Fetching).await;
    let watch = Watch::default();
    let request =
        PullImageRequest { progress: watch.sink(), ..PullImageRequest::new(format!("{}/two:v1", other.host())) };
    let second = node.engine.pull_image(request);
    let told = async {
        watch.until_layer(&digest, LayerState::WaitingForOther).await;
        node.registry.remove("one", &digest);
        node.registry.faults().clear();
    };
    let (second, ()) = tokio::join!(second, told);
    assert_eq!(second.expect("pulls"), two.id().to_string());
    let error = first.await.expect("no panic").expect_err("its registry has lost the blob");
    assert_eq!(error.kind(), Kind::NotFound, "{error}");
    let asked: Vec<String> = other.requests_for(&digest.to_string()).into_iter().map(|r| r.method).collect();
    assert_eq!(asked, ["HEAD", "GET"]);
    node.check_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_is_committed_just_before_its_start_is_not_fetched_again() {
    let node = Node::start().await;
    let [base, late, busy] =
        [layer("a/x", 1, 800_000).build(), layer("b/y", 2, 300_000).build(), layer("c/z", 3, 800_000).build()];
    let digest_of = |layer: &BuiltLayer| layer.descriptor.digest.clone();
    node.registry.push("other", "v1", &image().layer(base.clone()).build());
    node.registry.push("busy", "v1", &image().layer(busy.clone()).build());
    node.registry.push("app", "small", &image().layer(late.clone()).build());
    node.registry.push("app", "both", &image().layer(base.clone()).layer(late.clone()).build());
    node.pull("other:v1").await.expect("pulls");
    // While another pull fetches, a pull starts no layer before it has its config and has seen what is here.
    node.registry.faults().always(&path(&digest_of(&busy)), Fault::HangAfter { after: 500_000 });
    let (held, watch) = node.start_pull("busy:v1");
    watch.until(is_bytes(&digest_of(&busy))).await;
    // It has seen that the second layer is not here, and asks its registry whether it may use the first one.
    let asks = format!("/v2/app/blobs/{}", digest_of(&base));
    node.registry.faults().once(&asks, Fault::Hang);
    let (both, _watch) = node.start_pull("app:both");
    while node.registry.requests_for(&asks).is_empty() {
        tokio::task::yield_now().await;
    }
    node.pull("app:small").await.expect("pulls");
    node.registry.faults().release();
    let id = both.await.expect("no panic").expect("pulls");
    assert_eq!(node.asked_for(&digest_of(&late)), ["GET app"], "fetched once");
    assert!(node.file(&id, "b/y").is_some());
    node.registry.faults().clear();
    held.await.expect("no panic").expect("pulls");
    node.check_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_credentials_are_another_job() {
    let node = Node::start().await;
    let image = image().layer(layer("a/x", 1, 800_000)).build();
    node.registry.push("app", "v1", &image);
    node.registry.faults().once(&path(&blob(&image, 0)), Fault::HangAfter { after: 500_000 });
    let (first, watch) = node.start_pull("app:v1");
    watch.until(is_bytes(&blob(&image, 0))).await;
    let watch = Watch::default();
    let request = PullImageRequest {
        auth: Some(RegistryAuth::basic("ada", "swordfish")),
        progress: watch.sink(),
        ..PullImageRequest::new(node.name("app:v1"))
    };
    let second = node.engine.pull_image(request);
    let told = async {
        watch.until_layer(&blob(&image, 0), LayerState::WaitingForOther).await;
        assert_eq!(node.engine.in_flight(), (2, 1));
        node.registry.faults().release();
    };
    let (second, ()) = tokio::join!(second, told);
    assert_eq!(second.expect("pulls"), first.await.expect("no panic").expect("pulls"));
    assert_eq!(node.registry.requests_for("/manifests/").len(), 2, "each asked with its own credential");
    assert_eq!(node.registry.requests_for(&blob(&image, 0).to_string()).len(), 1);
    node.check_clean().await;
}

/// The same layer in another compression: another blob, the same diff id.
fn as_zstd(layer: &BuiltLayer) -> BuiltLayer {
    let bytes = zstd::encode_all(&layer.tar[..], 3).expect("compresses");
    LayerBuilder::from_blob(bytes, layer.diff_id.clone(), Compression::Zstd)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_arriving_in_one_compression_is_not_fetched_in_another() {
    let node = Node::start().await;
    let layers = [layer("a/x", 1, 800_000).build(), layer("b/y", 2, 300_000).build()];
    let gzip = layers.iter().cloned().fold(image(), |image, layer| image.layer(layer)).build();
    let zstd = layers.iter().map(as_zstd).fold(image(), |image, layer| image.layer(layer)).build();
    node.registry.push("app", "gzip", &gzip);
    node.registry.push("app", "zstd", &zstd);
    node.registry.faults().once(&path(&blob(&gzip, 0)), Fault::HangAfter { after: 500_000 });
    let (first, watch) = node.start_pull("app:gzip");
    watch.until(is_bytes(&blob(&gzip, 0))).await;
    // One of its layers is on the way, the other one is there and waits for the commit.
    watch.until_layer(&blob(&gzip, 1), LayerState::Done).await;
    let (second, watch) = node.start_pull("app:zstd");
    watch.until_layer(&blob(&zstd, 0), LayerState::WaitingForOther).await;
    watch.until_layer(&blob(&zstd, 1), LayerState::Done).await;
    node.registry.faults().release();
    let ids = [first.await.expect("no panic").expect("pulls"), second.await.expect("no panic").expect("pulls")];
    for id in ids {
        assert_eq!(node.file(&id, "a/x"), Some(noise(1, 800_000)));
        assert_eq!(node.file(&id, "b/y"), Some(noise(2, 300_000)));
    }
    for n in 0..2 {
        assert_eq!(node.registry.requests_for(&blob(&gzip, n).to_string()).len(), 1);
        assert!(node.registry.requests_for(&blob(&zstd, n).to_string()).is_empty());
    }
    assert!(watch.events().contains(&PullEvent::Layer { digest: blob(&zstd, 0), state: LayerState::Done }));
    assert_eq!(node.entries("layers").len(), 2);
    // What is here is not fetched either.
    node.registry.clear_requests();
    node.pull("app:zstd").await.expect("pulls");
    assert!(node.registry.requests_for("/blobs/").is_empty());
    node.check_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pulls_that_begin_together_fetch_each_layer_once() {
    let node = Node::start().await;
    let layers: Vec<_> = (0..5).map(|n| layer("a/x", n, 200_000).build()).collect();
    let gzip = layers.iter().cloned().fold(image(), |image, layer| image.layer(layer)).build();
    let zstd = layers.iter().map(as_zstd).fold(image(), |image, layer| image.layer(layer)).build();
    for tag in ["one", "two"] {
        node.registry.push("app", tag, &gzip);
    }
    node.registry.push("app", "zstd", &zstd);
    let pulls = ["app:one", "app:two", "app:zstd"].map(|name| node.pull(name));
    for pull in futures::future::join_all(pulls).await {
        pull.expect("pulls");
    }
    // A pull that began at the same moment without knowing has dropped the later job.
    let mut whole = 0;
    for n in 0..5 {
        let of = |image| node.registry.requests_for(&blob(image, n).to_string()).len();
        assert!(of(&gzip) <= 1 && of(&zstd) <= 1);
        whole += of(&gzip).max(of(&zstd));
    }
    assert_eq!(whole, 5);
    assert_eq!(node.entries("layers").len(), 5);
    node.check_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_compression_does_not_bring_is_fetched() {
    // The first image's config promises a layer that its blob is not; or its registry loses the blob.
    for lies in [true, false] {
        let node = Node::start().await;
        let good = layer("a/x", 1, 800_000).build();
        let own = as_zstd(&good);
        let other = if lies {
            let wrong = layer("a/x", 2, 800_000).build();
            LayerBuilder::from_blob(wrong.blob.to_vec(), good.diff_id.clone(), Compression::Gzip)
        } else {
            good.clone()
        };
        let one = image().layer(other).build();
        let two = image().layer(own).build();
        node.registry.push("app", "one", &one);
        node.registry.push("app", "two", &two);
        let held = if lies { Fault::HangAfter { after: 500_000 } } else { Fault::Hang };
        node.registry.faults().always(&path(&blob(&one, 0)), held);
        let (first, watch) = node.start_pull("app:one");
        watch.until_layer(&blob(&one, 0), LayerState::Fetching).await;
        let (second, watch) = node.start_pull("app:two");
        watch.until_layer(&blob(&two, 0), LayerState::WaitingForOther).await;
        if !lies {
            node.registry.remove("app", &blob(&one, 0));
        }
        node.registry.faults().clear();
        let id = second.await.expect("no panic").expect("pulls");
        assert_eq!(node.file(&id, "a/x"), Some(noise(1, 800_000)));
        let error = first.await.expect("no panic").expect_err("fails by itself");
        assert_eq!(error.kind(), if lies { Kind::DataLoss } else { Kind::NotFound }, "{error}");
        node.check_clean().await;
    }
}

/// A layer whose directories depend on what is below is unpacked for each stack, also when both come at once.
#[tokio::test(flavor = "multi_thread")]
async fn implicit_directories_are_of_the_own_stack() {
    let node = Node::start().await;
    let below = |mode: u32| LayerBuilder::new().dir_mode("opt/", mode).file("opt/base", mode.to_string()).build();
    let implicit = LayerBuilder::new().file("opt/tool", noise(1, 300_000)).build();
    for (name, mode) in [("one", 0o700), ("two", 0o750)] {
        node.registry.push(name, "v1", &image().layer(below(mode)).layer(implicit.clone()).build());
    }
    // And twice in one stack.
    let twice = image().layer(below(0o711)).layer(implicit.clone()).layer(below(0o755)).layer(implicit.clone()).build();
    node.registry.push("twice", "v1", &twice);
    let (one, two, twice) = tokio::join!(node.pull("one:v1"), node.pull("two:v1"), node.pull("twice:v1"));
    let mode = |id: String| {
        let view = node.view(&id);
        view.resolve(b"opt", false).expect("is there").stat().mode
    };
    assert_eq!(mode(one.expect("pulls")), 0o700);
    assert_eq!(mode(two.expect("pulls")), 0o750);
    assert_eq!(mode(twice.expect("pulls")), 0o755);
    node.check_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pulls_and_removals_at_once_leave_whole_images() {
    let node = Node::start().await;
    let base = layer("a/x", 1, 200_000).build();
    for seed in 0..4 {
        let image = image().layer(base.clone()).layer(layer("b/y", seed + 10, 50_000)).build();
        node.registry.push(&format!("app-{seed}"), "v1", &image);
    }
    let mut work = Vec::new();
    for round in 0..6 {
        for seed in 0..4 {
            work.push(node.start_pull(&format!("app-{seed}:v1")).0);
        }
        let spec = node.name(&format!("app-{}:v1", round % 4));
        node.engine.remove_image(&spec.as_str().into()).await.expect("removes");
    }
    for pull in work {
        pull.await.expect("no panic").expect("pulls");
    }
    for image in node.engine.list_images(None).await.expect("lists") {
        assert_eq!(node.file(&image.id, "a/x"), Some(noise(1, 200_000)));
    }
    node.check_clean().await;
}
