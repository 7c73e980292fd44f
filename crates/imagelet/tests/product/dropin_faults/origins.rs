//! Layers that containerd pulled itself: its label of their source has no port, so that it proves nothing. A pull of ours fetches the
//! bytes, and then uses the layer that is present.

use cri_api::{ImageService as _, PullImageRequest};
use cri_grpc::Endpoint;
use cri_grpc::client::{ClientOptions, connect_image_service};
use registry::testing::{BuiltImage, Fault, ImageBuilder, LayerBuilder, TestRegistry};
use tokio::runtime::Runtime;

use super::Harbour;
use crate::support::manifests::{Manifests, Pod};

fn layer(name: &str) -> LayerBuilder {
    LayerBuilder::new().file(name, name.repeat(3000))
}

/// A registry that has documents of the image and says that it has the layers, of which it has other bytes.
fn liar(runtime: &Runtime, image: &BuiltImage, repositories: &[&str]) -> TestRegistry {
    let liar = runtime.block_on(TestRegistry::open());
    for repository in repositories {
        let digest = liar.push_manifest(repository, &image.descriptor.media_type, image.manifest.clone());
        liar.tag(repository, "1", &digest);
        let (_, config) = image.blobs().find(|(digest, _)| digest == image.id()).expect("a config");
        liar.push_blob(repository, config);
    }
    for layer in &image.layers {
        let body = " ".repeat(layer.blob.len());
        let wrong = Fault::Status { code: 200, headers: Vec::new(), body };
        liar.faults().always(&format!("/blobs/{}", layer.descriptor.digest), wrong);
    }
    liar
}

/// The label of `127.0.0.1:A/team/app` is the one of `127.0.0.1:B/team/app`.
#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_registry_on_another_port_has_none_of_containerds_layers() {
    let h = Harbour::new(256);
    let runtime = Runtime::new().expect("a runtime");
    let owner = runtime.block_on(TestRegistry::open());
    let image = ImageBuilder::new().layer(layer("a")).layer(layer("b")).build();
    owner.push("team/app", "1", &image);
    h.plain.ok(&["pull", &format!("{}/team/app:1", owner.host())]);
    let visible = h.visible();
    let liar = liar(&runtime, &image, &["team/app", "other"]);
    let socket = h.s.scratch.join("front.sock");
    let _agent = h.imagelet.serve(&socket);
    for repository in ["team/app", "other"] {
        let name = format!("{}/{repository}:1", liar.host());
        h.imagelet.fails(1, &["pull", &name]);
        h.imagelet.fails(1, &["pull", &name, "--creds", "b:of-tenant-b"]);
        let pod = Pod { namespace: "b", name: "b", image: &name, policy: "IfNotPresent", secrets: &[] };
        let file = Manifests::new().pod(pod).write(&h.s.scratch.join("b.yaml"));
        let done = h.imagelet.run(&["ensure", "-f", &file]);
        assert!(done.code == Some(1) && done.stderr.contains("ErrImagePull"), "{}", done.stderr);
        let endpoint = Endpoint::parse(&format!("unix://{}", socket.display())).expect("an endpoint");
        let pulled = runtime.block_on(async {
            let service = connect_image_service(&endpoint, ClientOptions::default()).await.expect("connects");
            service.pull_image(PullImageRequest::new(&name)).await
        });
        pulled.expect_err("the registry has no such layer");
        assert_eq!(h.visible(), visible, "{name}");
    }
    h.nothing_on_the_way("refused");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_layer_of_containerds_own_pull_is_fetched_once_and_used() {
    let h = Harbour::new(256);
    let runtime = Runtime::new().expect("a runtime");
    let registry = runtime.block_on(TestRegistry::open());
    let base = layer("base").build();
    let image = |top: &str| ImageBuilder::new().layer(base.clone()).layer(layer(top)).build();
    for top in ["one", "two", "three"] {
        registry.push("team/app", top, &image(top));
    }
    let name = |tag: &str| format!("{}/team/app:{tag}", registry.host());
    h.plain.ok(&["pull", &name("one")]);
    let path = format!("/v2/team/app/blobs/{}", base.descriptor.digest);
    let reads = || registry.requests().iter().filter(|r| r.method == "GET" && r.path == path).count();
    let before = (reads(), h.committed());
    for tag in ["two", "three"] {
        h.imagelet.ok(&["pull", &name(tag)]);
        assert_eq!(reads(), before.0 + 1, "{tag}: fetched once, and recorded");
    }
    // Without a second snapshot of the base.
    assert_eq!(h.committed().difference(&before.1).count(), 2, "{:?}", h.committed());
    h.tree(&name("three"));
    h.nothing_on_the_way("three images");
    h.empty("at the end");
}
