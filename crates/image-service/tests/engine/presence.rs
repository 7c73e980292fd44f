//! Content that is present: nothing of it is fetched again, what was damaged comes back, names move.

use cri_api::engine::ImageEngine as _;
use cri_api::{ImageFilter, ImageService as _, ImageSpec, Kind};
use registry::testing::{Compression, LayerBuilder, TestRegistry};

use crate::support::{Node, blob, image, layer, noise};

fn asked(registry: &TestRegistry) -> Vec<String> {
    registry.requests().into_iter().map(|r| r.path).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_pull_only_resolves() {
    let node = Node::start().await;
    let image = image().layer(layer("a/x", 1, 1000)).build();
    let digest = node.registry.push("app", "v1", &image);
    node.pull("app:v1").await.expect("pulls");
    node.registry.clear_requests();
    node.pull("app:v1").await.expect("pulls");
    assert_eq!(asked(&node.registry), ["/v2/app/manifests/v1"]);
    node.registry.clear_requests();
    node.pull(&format!("app@{digest}")).await.expect("pulls");
    assert_eq!(asked(&node.registry), [format!("/v2/app/manifests/{digest}")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn trusted_digests_need_no_registry() {
    let node = Node::with(|options| options.trust_present_digests = true).await;
    let image = image().layer(layer("a/x", 1, 1000)).build();
    let digest = node.registry.push("app", "v1", &image);
    node.pull("app:v1").await.expect("pulls");
    node.registry.clear_requests();
    assert_eq!(node.pull(&format!("app@{digest}")).await.expect("pulls"), image.id().to_string());
    assert!(asked(&node.registry).is_empty());
    std::fs::remove_dir_all(node.directory.path().join("store/layers/1")).expect("removes");
    node.pull(&format!("app@{digest}")).await.expect("pulls");
    assert!(!asked(&node.registry).is_empty(), "what is damaged is fetched");
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_of_other_images_are_not_fetched() {
    let node = Node::start().await;
    let base = layer("a/x", 1, 50_000).build();
    let first = image().layer(base.clone()).layer(layer("b/y", 2, 100)).build();
    let second = image().layer(base.clone()).layer(layer("c/z", 3, 100)).build();
    node.registry.push("one", "v1", &first);
    node.registry.push("two", "v1", &second);
    node.pull("one:v1").await.expect("pulls");
    node.registry.clear_requests();
    let id = node.pull("two:v1").await.expect("pulls");
    assert_eq!(node.asked_for(&base.descriptor.digest), ["HEAD two"]);
    assert_eq!(node.file(&id, "a/x"), Some(noise(1, 50_000)));
    assert_eq!(node.entries("layers").len(), 3);
    // The same content in another compression, which the diff ID shows.
    let zstd = LayerBuilder::from_blob(zstd::encode_all(&base.tar[..], 3).unwrap(), base.diff_id, Compression::Zstd);
    node.registry.push("three", "v1", &image().layer(zstd).build());
    node.pull("three:v1").await.expect("pulls");
    assert_eq!(node.entries("layers").len(), 3);
    node.check_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_image_is_absent_until_the_next_pull() {
    let node = Node::start().await;
    let image = image().layer(layer("a/x", 1, 1000)).layer(layer("b/y", 2, 1000)).build();
    node.registry.push("app", "v1", &image);
    let id = node.pull("app:v1").await.expect("pulls");
    let layers = node.entries("layers");
    std::fs::remove_dir_all(node.directory.path().join("store/layers").join(&layers[0])).expect("removes");
    assert!(node.status("app:v1").await.is_none());
    node.registry.clear_requests();
    assert_eq!(node.pull("app:v1").await.expect("pulls"), id);
    assert_eq!(node.registry.requests_for("/blobs/").len(), 1, "only what is missing: {:?}", asked(&node.registry));
    assert_eq!(node.file(&id, "a/x"), Some(noise(1, 1000)));
    assert_eq!(node.file(&id, "b/y"), Some(noise(2, 1000)));
    assert!(node.status("app:v1").await.is_some());
    node.check_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_moved_tag_leaves_the_old_image_without_it() {
    let node = Node::start().await;
    let [old, new] = [1, 2].map(|seed| image().layer(layer("a/x", seed, 100)).build());
    let digest = node.registry.push("app", "v1", &old);
    let old_id = node.pull("app:v1").await.expect("pulls");
    node.registry.push("app", "v1", &new);
    let new_id = node.pull("app:v1").await.expect("pulls");
    assert_ne!(old_id, new_id);
    assert_eq!(node.status("app:v1").await.expect("is there").id, new_id);
    let images = node.engine.list_images(None).await.expect("lists");
    let old = images.iter().find(|i| i.id == old_id).expect("the old image is still listed");
    assert!(old.repo_tags.is_empty());
    assert_eq!(old.repo_digests, [node.name(&format!("app@{digest}"))]);
    node.engine.remove_image(&old_id.as_str().into()).await.expect("removes");
    assert_eq!(node.engine.list_images(None).await.expect("lists").len(), 1);
    node.check_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_filter_of_a_list() {
    let node = Node::start().await;
    let base = layer("a/x", 1, 100_000).build();
    let images = [2, 3].map(|seed| image().layer(base.clone()).layer(layer("b/y", seed, 30_000)).build());
    for (name, image) in ["one", "two"].iter().zip(&images) {
        node.registry.push(name, "v1", image);
        node.pull(&format!("{name}:v1")).await.expect("pulls");
    }
    let mut counts = Vec::new();
    for name in [node.name("one:v1"), String::new(), node.name("absent:v1"), "no name at all".to_owned()] {
        let filter = ImageFilter { image: Some(ImageSpec::new(name)) };
        counts.push(node.engine.list_images(Some(&filter)).await.expect("lists").len());
    }
    assert_eq!(counts, [1, 2, 0, 0]);
    // A repository without a tag means all of its tags.
    node.registry.push("one", "v2", &images[1]);
    node.pull("one:v2").await.expect("pulls");
    let mut counts = Vec::new();
    for name in [node.name("one"), node.name("two"), node.name("on")] {
        let filter = ImageFilter { image: Some(ImageSpec::new(name)) };
        counts.push(node.engine.list_images(Some(&filter)).await.expect("lists").len());
    }
    assert_eq!(counts, [2, 1, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_and_file_system() {
    let node = Node::start().await;
    let base = layer("a/x", 1, 100_000).build();
    for (name, seed) in [("one", 2), ("two", 3)] {
        let image = image().layer(base.clone()).layer(layer("b/y", seed, 30_000)).build();
        node.registry.push(name, "v1", &image);
        node.pull(&format!("{name}:v1")).await.expect("pulls");
    }
    let usage = node.engine.image_usage(&ImageSpec::new(node.name("one:v1"))).await.expect("usage").expect("known");
    assert!((30_000..80_000).contains(&usage.unique_bytes), "{usage:?}");
    assert!((100_000..150_000).contains(&usage.shared_bytes), "{usage:?}");
    let before = node.engine.image_fs_info().await.expect("info").image_filesystems.remove(0);
    assert_eq!(before.mountpoint, node.directory.path().join("store").to_string_lossy());
    assert!(before.timestamp > 0 && before.inodes_used > Some(0));
    node.engine.remove_image(&ImageSpec::new(node.name("one:v1"))).await.expect("removes");
    let after = node.engine.image_fs_info().await.expect("info").image_filesystems.remove(0);
    assert_eq!(before.used_bytes.unwrap() - after.used_bytes.unwrap(), usage.unique_bytes);
    let none = node.engine.image_usage(&ImageSpec::new(node.name("one:v1"))).await.expect("usage");
    assert_eq!(none, None);
    let error = node.engine.image_status(&ImageSpec::new(""), false).await.expect_err("empty");
    assert_eq!(error.kind(), Kind::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_here_is_known_after_a_restart() {
    let node = Node::start().await;
    let image = image().layer(layer("a/x", 1, 1000)).build();
    node.registry.push("app", "v1", &image);
    node.registry.push("copy", "v1", &image);
    node.pull("app:v1").await.expect("pulls");
    let Node { engine, registry, directory } = node;
    engine.shutdown().await;
    drop(engine);
    let engine = image_service::Engine::open(crate::support::options(directory.path())).await.expect("opens again");
    let node = Node { engine, registry, directory };
    assert!(node.status("app:v1").await.is_some());
    node.registry.clear_requests();
    node.pull("copy:v1").await.expect("pulls");
    assert_eq!(node.asked_for(&blob(&image, 0)), ["HEAD copy"], "the layer is not fetched");
    assert_eq!(node.asked_for(image.id()), ["GET copy"]);
    assert_eq!(asked(&node.registry).len(), 3);
    node.registry.push("copy", "v2", &image);
    node.registry.clear_requests();
    node.pull("copy:v2").await.expect("pulls");
    assert_eq!(asked(&node.registry), ["/v2/copy/manifests/v2"], "neither config nor layer");
}
