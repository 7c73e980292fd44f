//! Two tenants of one node: content that one tenant fetched with its credential is not available to the other, which
//! knows every digest of it, but has no access. In both shapes, and for all content of a node: images, layers in
//! flight, kept blobs, leftovers of pulls.

use std::path::Path;

use cri_api::engine::ImportOptions;
use cri_api::{Error, ImageService as _, Kind, LayerState, PullImageRequest};
use image_service::{Engine, Resume, SharedContent};
use oci::{Digest, RegistryAuth};
use registry::testing::{BuiltImage, Compression, Fault, LayerBuilder, TestRegistry};
use store::LayerFormat;

use crate::support::{Node, Watch, blob, image, layer, noise, options};

const FORMATS: [LayerFormat; 2] = [LayerFormat::Dir, LayerFormat::Erofs];
const SIZE: usize = 2_000_000;

async fn node(format: LayerFormat) -> Node {
    Node::with(|options| options.store.layer_format = format).await
}

/// An image of two layers, which only A's credential opens.
fn private() -> BuiltImage {
    image().layer(layer("a/secret", 1, SIZE)).layer(layer("b/more", 2, 300_000)).env("TOKEN", "swordfish").build()
}

/// A request of A, with its credential.
fn as_a(node: &Node, name: &str) -> PullImageRequest {
    PullImageRequest { auth: Some(RegistryAuth::basic("a", "secret")), ..PullImageRequest::new(node.name(name)) }
}

/// A's pull as a task of its own.
#[expect(clippy::disallowed_methods, reason = "tests may spawn tasks of their own")]
fn start_as_a(node: &Node) -> (tokio::task::JoinHandle<Result<String, Error>>, Watch) {
    let watch = Watch::default();
    let request = PullImageRequest { progress: watch.sink(), ..as_a(node, "priv/app:v1") };
    let engine = node.engine.clone();
    (tokio::spawn(async move { engine.pull_image(request).await }), watch)
}

async fn a_has_pulled(node: &Node) -> BuiltImage {
    let image = private();
    node.registry.push("priv/app", "v1", &image);
    node.engine.pull_image(as_a(node, "priv/app:v1")).await.expect("pulls");
    node.registry.clear_requests();
    image
}

/// B's repository has a copy of the manifest, and of the config if B knows that; and no layer.
fn copy(registry: &TestRegistry, image: &BuiltImage, with_config: bool) {
    let digest = registry.push_manifest("b/copy", &image.descriptor.media_type, image.manifest.clone());
    registry.tag("b/copy", "v1", &digest);
    if with_config {
        let (_, config) = image.blobs().find(|(digest, _)| digest == image.id()).expect("a config");
        registry.push_blob("b/copy", config);
    }
}

/// The pull failed for want of content, and nothing of the image goes by B's name.
async fn b_has_nothing(node: &Node, result: Result<String, Error>) {
    let error = result.expect_err("B has no such content");
    assert_eq!(error.kind(), Kind::NotFound, "{error}");
    assert!(node.status("b/copy:v1").await.is_none());
    for image in node.engine.list_images(None).await.expect("lists") {
        let names = image.repo_tags.iter().chain(&image.repo_digests);
        assert!(names.into_iter().all(|name| name.starts_with(&node.name("priv/app"))), "{image:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_manifest_is_not_the_image() {
    for format in FORMATS {
        for with_config in [false, true] {
            let node = node(format).await;
            let image = a_has_pulled(&node).await;
            copy(&node.registry, &image, with_config);
            b_has_nothing(&node, node.pull("b/copy:v1").await).await;
            b_has_nothing(&node, node.pull(&format!("b/copy@{}", image.digest())).await).await;
            // With a credential of its own that is not A's, too.
            let auth = Some(RegistryAuth::basic("b", "other"));
            let request = PullImageRequest { auth, ..PullImageRequest::new(node.name("b/copy:v1")) };
            b_has_nothing(&node, node.engine.pull_image(request).await).await;
            assert!(node.status("priv/app:v1").await.is_some());
            node.check_clean().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_all_of_it_asks_for_each_blob_once() {
    for format in FORMATS {
        let node = node(format).await;
        let image = a_has_pulled(&node).await;
        node.registry.push("b/copy", "v1", &image);
        assert_eq!(node.pull("b/copy:v1").await.expect("B has it"), image.id().to_string());
        assert_eq!(node.asked_for(image.id()), ["GET b/copy"]);
        for n in 0..2 {
            assert_eq!(node.asked_for(&blob(&image, n)), ["HEAD b/copy"]);
        }
        assert_eq!(node.registry.requests().len(), 4, "and the manifest");
        // A second tag of the same repository, after a restart as well.
        let node = restart(node, |options| options.store.layer_format = format).await;
        node.registry.push("b/copy", "v2", &image);
        node.registry.clear_requests();
        node.pull("b/copy:v2").await.expect("pulls");
        assert_eq!(node.registry.requests().len(), 1, "{:?}", node.registry.requests());
        node.check_clean().await;
    }
}

async fn restart(node: Node, change: impl FnOnce(&mut image_service::EngineOptions)) -> Node {
    let Node { engine, registry, directory } = node;
    engine.shutdown().await;
    drop(engine);
    let mut options = options(directory.path());
    change(&mut options);
    Node { engine: Engine::open(options).await.expect("opens"), registry, directory }
}

/// B runs a registry which says that it has whatever it is asked for.
#[tokio::test(flavor = "multi_thread")]
async fn the_word_of_another_registry_opens_nothing() {
    for format in FORMATS {
        let node = node(format).await;
        let image = a_has_pulled(&node).await;
        let liar = TestRegistry::open().await;
        copy(&liar, &image, true);
        for layer in &image.layers {
            let headers = vec![("content-length".to_owned(), layer.descriptor.size.to_string())];
            let yes = Fault::Status { code: 200, headers, body: String::new() };
            liar.faults().always(&format!("/blobs/{}", layer.descriptor.digest), yes);
        }
        let name = format!("{}/b/copy:v1", liar.host());
        node.engine.pull_image(PullImageRequest::new(name.as_str())).await.expect_err("it has nothing to give");
        let status = node.engine.image_status(&name.as_str().into(), false).await.expect("a status");
        assert!(status.image.is_none());
        node.check_clean().await;
    }
}

/// Images that were pulled without a credential are no secret; there a registry's word will do.
#[tokio::test(flavor = "multi_thread")]
async fn what_everybody_may_have_is_shared_between_registries() {
    let node = Node::start().await;
    let image = private();
    node.registry.push("app", "v1", &image);
    node.pull("app:v1").await.expect("pulls");
    let other = TestRegistry::open().await;
    other.push("mine", "v1", &image);
    node.engine.pull_image(PullImageRequest::new(format!("{}/mine:v1", other.host()))).await.expect("pulls");
    let methods = |digest: &Digest| other.requests_for(&format!("/blobs/{digest}")).into_iter().map(|r| r.method);
    assert_eq!(methods(&blob(&image, 0)).collect::<Vec<_>>(), ["HEAD"]);
}

/// A config of B's own that lists A's diff ids, which are no secret, and blobs that do not come.
#[tokio::test(flavor = "multi_thread")]
async fn diff_ids_open_nothing() {
    for format in FORMATS {
        let node = node(format).await;
        let theirs = a_has_pulled(&node).await;
        let own = layer("x/y", 9, 400_000).build();
        let made_up = image().layer(own.clone()).diff_ids(vec![theirs.layers[0].diff_id.clone()]).build();
        node.registry.push("b/own", "v1", &made_up);
        node.registry.faults().always(&format!("/blobs/{}", own.descriptor.digest), Fault::Hang);
        let (pull, watch) = node.start_pull("b/own:v1");
        watch.until_layer(&own.descriptor.digest, LayerState::Fetching).await;
        assert!(!pull.is_finished());
        node.registry.faults().clear();
        let error = pull.await.expect("no panic").expect_err("it is another layer");
        assert_eq!(error.kind(), Kind::DataLoss, "{error}");
        // The right blob in the manifest does not help either: B's repository does not have it.
        let right = LayerBuilder::from_blob(
            theirs.layers[0].blob.to_vec(),
            theirs.layers[0].diff_id.clone(),
            Compression::Gzip,
        );
        let listed = image().layer(right).build();
        node.registry.push("b/own", "v2", &listed);
        node.registry.remove("b/own", &blob(&listed, 0));
        let error = node.pull("b/own:v2").await.expect_err("it has no such blob");
        assert_eq!(error.kind(), Kind::NotFound, "{error}");
        assert_eq!(node.engine.list_images(None).await.expect("lists").len(), 1);
        node.check_clean().await;
    }
}

/// A's pull is on its way, or waits for its commit with a layer that is ready.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_on_its_way_is_not_joined() {
    for format in FORMATS {
        for held in 0..2 {
            let node = node(format).await;
            let image = private();
            node.registry.push("priv/app", "v1", &image);
            copy(&node.registry, &image, true);
            let path = format!("priv/app/blobs/{}", blob(&image, held));
            node.registry.faults().once(&path, Fault::HangAfter { after: 200_000 });
            let (pull, watch) = start_as_a(&node);
            watch.until_layer(&blob(&image, 1 - held), LayerState::Done).await;
            watch.until_layer(&blob(&image, held), LayerState::Fetching).await;
            b_has_nothing(&node, node.pull("b/copy:v1").await).await;
            node.registry.faults().release();
            assert_eq!(pull.await.expect("no panic").expect("A's goes on"), image.id().to_string());
            node.check_clean().await;
        }
    }
}

/// The same for a layer that comes in another compression under a digest that B made up.
#[tokio::test(flavor = "multi_thread")]
async fn another_blob_of_the_same_diff_id_is_not_joined() {
    let node = Node::start().await;
    let theirs = private();
    node.registry.push("priv/app", "v1", &theirs);
    let path = format!("/blobs/{}", blob(&theirs, 0));
    node.registry.faults().once(&path, Fault::HangAfter { after: 200_000 });
    let (pull, watch) = start_as_a(&node);
    watch.until_layer(&blob(&theirs, 0), LayerState::Fetching).await;
    let own = layer("x/y", 9, 400_000).build();
    let made_up = image().layer(own).diff_ids(vec![theirs.layers[0].diff_id.clone()]).build();
    node.registry.push("b/own", "v1", &made_up);
    let error = node.pull("b/own:v1").await.expect_err("it is another layer");
    assert_eq!(error.kind(), Kind::DataLoss, "{error}");
    assert_eq!(node.asked_for(&blob(&made_up, 0)).first().map(String::as_str), Some("GET b/own"));
    node.registry.faults().release();
    pull.await.expect("no panic").expect("A's goes on");
    node.check_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kept_blobs_are_not_the_others() {
    for format in FORMATS {
        let node = Node::with(|o| (o.keep_blobs, o.store.layer_format) = (true, format)).await;
        let image = a_has_pulled(&node).await;
        // Its files are gone, and the blob is what it could be made of again.
        for name in node.entries("layers") {
            std::fs::remove_dir_all(node.directory.path().join("store/layers").join(name)).expect("removes");
        }
        copy(&node.registry, &image, true);
        b_has_nothing(&node, node.pull("b/copy:v1").await).await;
        // A manifest of B's own repository that names A's blob for a layer of B's, so that it seems to be B's.
        let own = layer("x/y", 9, 400_000).build();
        node.registry.push("b/copy", "own", &crate::support::image().layer(own.clone()).build());
        let id = node.pull("b/copy:own").await.expect("B's own");
        let theirs = LayerBuilder::from_blob(image.layers[0].blob.to_vec(), own.diff_id.clone(), Compression::Gzip);
        let mixed = crate::support::image().layer(theirs).env("B", "1").build();
        node.registry.push("b/copy", "mixed", &mixed);
        node.registry.remove("b/copy", &blob(&image, 0));
        let error = node.pull("b/copy:mixed").await.expect_err("it has no such blob");
        assert_eq!(error.kind(), Kind::NotFound, "{error}");
        node.engine.remove_image(&id.as_str().into()).await.expect("removes");
        // A's comes back from what was kept, with nothing fetched.
        node.registry.clear_requests();
        node.engine.pull_image(as_a(&node, "priv/app:v1")).await.expect("pulls");
        assert!(node.registry.requests_for("/blobs/").is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_of_a_pull_is_not_the_others() {
    for format in FORMATS {
        let with = |o: &mut image_service::EngineOptions| (o.resume, o.store.layer_format) = (Resume::Always, format);
        let node = Node::with(with).await;
        let image = image().layer(layer("a/secret", 1, SIZE)).layer(layer("b/more", 2, 3 * SIZE)).build();
        node.registry.push("priv/app", "v1", &image);
        let path = format!("priv/app/blobs/{}", blob(&image, 1));
        node.registry.faults().once(&path, Fault::HangAfter { after: 2 * SIZE });
        let (pull, watch) = start_as_a(&node);
        watch.until_layer(&blob(&image, 0), LayerState::Done).await;
        let half = blob(&image, 1);
        let came = |event: &cri_api::PullEvent| matches!(event, cri_api::PullEvent::Bytes { digest, done } if *digest == half && *done > SIZE as u64);
        watch.until(came).await;
        pull.abort();
        let _ = pull.await;
        let node = restart(node, with).await;
        node.registry.release_what_was_given_up().await;
        let left = node.engine.store().unfinished();
        assert_eq!((left.layers, left.blobs), (1, 1));
        copy(&node.registry, &image, true);
        b_has_nothing(&node, node.pull("b/copy:v1").await).await;
        assert_eq!(node.engine.store().unfinished(), left, "it is A's still");
        // A goes on with it.
        node.registry.clear_requests();
        node.engine.pull_image(as_a(&node, "priv/app:v1")).await.expect("pulls");
        assert!(node.asked_for(&blob(&image, 0)).is_empty());
        assert!(node.registry.requests_for(&format!("/blobs/{half}")).iter().all(|r| r.range().is_some()));
        node.check_clean().await;
    }
}

/// An archive of B's making, with A's documents and with something else in the place of A's layers, or nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_archive_of_documents_is_not_the_image() {
    for format in FORMATS {
        for garbage in [true, false] {
            let node = node(format).await;
            let image = a_has_pulled(&node).await;
            let layout = node.directory.path().join("layout");
            image.write_layout(&layout, "b.example/copy:v1").expect("writes");
            for layer in &image.layers {
                let path = layout.join("blobs/sha256").join(layer.descriptor.digest.hex());
                match garbage {
                    true => std::fs::write(&path, noise(7, layer.blob.len())).expect("writes"),
                    false => std::fs::remove_file(&path).expect("removes"),
                }
            }
            import(&node, &layout).await.expect_err("its layers are not there");
            let status = node.engine.image_status(&"b.example/copy:v1".into(), false).await.expect("a status");
            assert!(status.image.is_none());
            // All of it is.
            std::fs::remove_dir_all(&layout).expect("removes");
            image.write_layout(&layout, "b.example/copy:v1").expect("writes");
            import(&node, &layout).await.expect("imports");
            node.check_clean().await;
        }
    }
}

async fn import(node: &Node, layout: &Path) -> Result<(), Error> {
    node.engine.import(layout, ImportOptions::default()).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_node_asks_for_nothing_that_is_here() {
    let node = Node::with(|options| options.shared_content = SharedContent::Open).await;
    let image = a_has_pulled(&node).await;
    copy(&node.registry, &image, false);
    assert_eq!(node.pull("b/copy:v1").await.expect("as it says"), image.id().to_string());
    assert_eq!(node.registry.requests().len(), 1);
}

/// Images of versions that did not record their provenance.
#[tokio::test(flavor = "multi_thread")]
async fn images_of_earlier_versions_are_of_the_repositories_whose_names_they_have() {
    let node = Node::start().await;
    let image = a_has_pulled(&node).await;
    let store = node.engine.store();
    let record = store.image(image.id()).expect("readable").expect("there");
    let (lease, layers) = (store.lease(), store.image_layers(&record).expect("layers"));
    let commit = store::ImageCommit {
        config: record.config,
        manifest: record.manifest,
        manifest_media_type: record.manifest_media_type,
        layers: layers.into_iter().map(store::LayerSource::Present).collect(),
        ..store::ImageCommit::default()
    };
    assert!(store.commit_image(&lease, commit).expect("commits").annotations.is_empty());
    drop(lease);
    let node = restart(node, |_| {}).await;
    node.registry.push("priv/app", "v2", &image);
    node.engine.pull_image(as_a(&node, "priv/app:v2")).await.expect("pulls");
    assert_eq!(node.registry.requests().len(), 1);
    copy(&node.registry, &image, true);
    let error = node.pull("b/copy:v1").await.expect_err("B has no such content");
    assert_eq!(error.kind(), Kind::NotFound, "{error}");
    // Which blob a layer came from is not known: it is fetched, and known from then on.
    node.registry.push("b/copy", "v1", &image);
    node.registry.clear_requests();
    node.pull("b/copy:v1").await.expect("pulls");
    assert_eq!(node.asked_for(&blob(&image, 0)), ["GET b/copy"]);
    node.registry.push("c/copy", "v1", &image);
    node.registry.clear_requests();
    node.pull("c/copy:v1").await.expect("pulls");
    assert_eq!(node.asked_for(&blob(&image, 0)), ["HEAD c/copy"]);
    node.check_clean().await;
}
