//! A second tenant who knows every digest of an image and may not have it, through every way in: a shell, manifests, a kubelet's
//! socket, an agent that holds the root, an archive. In both shapes of layers.

use std::fs;
use std::path::Path;

use cri_api::{ImageService as _, PullImageRequest};
use cri_grpc::Endpoint;
use cri_grpc::client::{ClientOptions, connect_image_service};
use registry::testing::{BuiltImage, ImageBuilder, LayerBuilder, TestRegistry};
use tokio::runtime::Runtime;

use crate::support::manifests::{Manifests, Pod, PullSecret};
use crate::support::{Imagelet, Scratch, runtime};

struct Scene {
    runtime: Runtime,
    registry: TestRegistry,
    scratch: Scratch,
    imagelet: Imagelet,
    image: BuiltImage,
    /// B's name for what A has.
    copy: String,
}

impl Scene {
    /// A's pod has its image. B's repository has a copy of its manifest and config, and no layer.
    fn new(format: &str) -> Self {
        let scratch = Scratch::new();
        let runtime = runtime();
        let registry = runtime.block_on(TestRegistry::open());
        let layer = LayerBuilder::new().dir("data/").file("data/secret", vec![7; 100_000]);
        let image = ImageBuilder::new().layer(layer).env("A", "b").build();
        registry.push("a/app", "v1", &image);
        let host = registry.host();
        let imagelet = Imagelet::on(&scratch.join("store")).global("--layer-format", format);
        let name = format!("{host}/a/app:v1");
        let pod = Pod { namespace: "a", name: "a", image: &name, policy: "IfNotPresent", secrets: &["pull"] };
        let secret =
            PullSecret { namespace: "a", name: "pull", uid: "1", registry: &host, user: "a", password: "of-tenant-a" };
        imagelet.ok(&["ensure", "-f", &Manifests::new().pod(pod).secret(secret).write(&scratch.join("a.yaml"))]);
        let digest = registry.push_manifest("b/copy", &image.descriptor.media_type, image.manifest.clone());
        registry.tag("b/copy", "v1", &digest);
        let (_, config) = image.blobs().find(|(digest, _)| digest == image.id()).expect("a config");
        registry.push_blob("b/copy", config);
        let copy = format!("{host}/b/copy:v1");
        Self { runtime, registry, scratch, imagelet, image, copy }
    }

    /// Asserts that nothing is listed under B's name.
    #[track_caller]
    fn nothing_was_requested(&self) {
        let listed = self.imagelet.ok(&["images", "-o", "json"]);
        assert!(listed.contains("/a/app") && !listed.contains("/b/copy") && !listed.contains("b.example"), "{listed}");
    }

    fn write_copy(&self, layout: &Path) {
        self.image.write_layout(layout, "b.example/copy:v1").expect("writes");
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_copy_of_a_manifest_brings_nothing_through_any_way_in() {
    for format in ["dir", "erofs"] {
        let s = Scene::new(format);
        s.imagelet.fails(1, &["pull", &s.copy]);
        s.imagelet.fails(1, &["pull", &s.copy, "--creds", "b:of-tenant-b"]);
        let pod = Pod { namespace: "b", name: "b", image: &s.copy, policy: "IfNotPresent", secrets: &[] };
        let done = s.imagelet.run(&["ensure", "-f", &Manifests::new().pod(pod).write(&s.scratch.join("b.yaml"))]);
        assert!(done.code == Some(1) && done.stderr.contains("ErrImagePull"), "{}", done.stderr);
        s.nothing_was_requested();

        let layout = s.scratch.join("layout");
        s.write_copy(&layout);
        let layer = layout.join("blobs/sha256").join(s.image.layers[0].descriptor.digest.hex());
        fs::write(&layer, vec![1; s.image.layers[0].blob.len()]).expect("writes");
        s.imagelet.fails(1, &["import", &layout.display().to_string()]);
        s.nothing_was_requested();

        let socket = s.scratch.join("cri.sock");
        let _agent = s.imagelet.serve(&socket);
        let endpoint = Endpoint::parse(&format!("unix://{}", socket.display())).expect("an endpoint");
        let pulled = s.runtime.block_on(async {
            let service = connect_image_service(&endpoint, ClientOptions::default()).await.expect("connects");
            service.pull_image(PullImageRequest::new(&s.copy)).await
        });
        pulled.expect_err("B has no such content");
        s.imagelet.fails(1, &["pull", &s.copy]);
        s.nothing_was_requested();
        let asked = s.registry.requests_for("b/copy/blobs/");
        assert!(asked.iter().all(|r| r.status == 404 || r.path.ends_with(&s.image.id().to_string())), "{asked:?}");
    }
}
