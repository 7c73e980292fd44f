//! Nothing of an image selects the engine that pulls it: foreign layers, URLs, and layers that cannot be unpacked, in the embedded store
//! and behind containerd, by each way in.

use cri_api::{ImageService as _, PodSandboxConfig, PullImageRequest};
use cri_grpc::Endpoint;
use cri_grpc::client::{ClientOptions, connect_image_service};
use oci::{Descriptor, media_type};
use registry::testing::{BuiltImage, ImageBuilder, LayerBuilder, TestRegistry};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::support::manifests::{Manifests, Pod};
use crate::support::node::{FOREVER, Node};
use crate::support::{Containerd, Imagelet, Scratch, runtime};

const FOREIGN: &str = "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip";
const ENCRYPTED: &str = "application/vnd.oci.image.layer.v1.tar+gzip+encrypted";

/// A registry, a server that must not be asked, and the ways to pull.
struct Scene {
    runtime: Runtime,
    registry: TestRegistry,
    elsewhere: TestRegistry,
    containerd: Containerd,
    scratch: Scratch,
}

impl Scene {
    fn new() -> Self {
        let scratch = Scratch::new();
        let runtime = runtime();
        let (registry, elsewhere) =
            runtime.block_on(async { (TestRegistry::open().await, TestRegistry::open().await) });
        let containerd = Containerd::start(&registry.host());
        Self { runtime, registry, elsewhere, containerd, scratch }
    }

    fn own(&self) -> Imagelet {
        Imagelet::on(&self.scratch.join("own"))
    }

    fn behind(&self) -> Imagelet {
        Imagelet::on(&self.scratch.join("behind")).global("--image-endpoint", &self.containerd.endpoint())
    }

    /// Pushes an image whose one layer has another descriptor.
    fn push(&self, name: &str, tag: &str, image: &BuiltImage) -> String {
        self.registry.push(name, tag, image);
        format!("{}/{name}:{tag}", self.registry.host())
    }

    /// Pulls by a command, for a pod, and for a client of CRI. Answers what each said, and whether it could.
    fn every_way(&self, imagelet: &Imagelet, name: &str) -> Vec<(bool, String)> {
        let pod = Pod { namespace: "b", name: "b", image: name, policy: "IfNotPresent", secrets: &[] };
        let pod = Manifests::new().pod(pod).write(&self.scratch.join("pod.yaml"));
        let mut said: Vec<(bool, String)> = [&["pull", name][..], &["ensure", "-f", &pod]]
            .into_iter()
            .map(|args| imagelet.run(args))
            .map(|done| (done.code == Some(0), done.stderr))
            .collect();
        let socket = self.scratch.join("cri.sock");
        let mut agent = imagelet.serve(&socket);
        let front = Imagelet::remote(&format!("unix://{}", socket.display())).global("--pull-engine", "runtime");
        let done = front.run(&["pull", name]);
        said.push((done.code == Some(0), done.stderr));
        agent.stop();
        said
    }
}

fn one_layer(seed: &str) -> BuiltImage {
    ImageBuilder::new().layer(LayerBuilder::new().file(seed, seed.repeat(5000))).build()
}

fn with_urls(scene: &Scene, kind: &str, layer: &mut Descriptor) {
    kind.clone_into(&mut layer.media_type);
    layer.urls = vec![format!("http://{}/metadata", scene.elsewhere.host())];
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn layers_with_urls_come_from_their_registry_alone() {
    let s = Scene::new();
    for (number, kind) in [media_type::OCI_LAYER_GZIP, FOREIGN].into_iter().enumerate() {
        let image = one_layer(&format!("here {number}")).with_layer(0, |layer| with_urls(&s, kind, layer));
        let present = s.push("urls/present", &number.to_string(), &image);
        // One whose layer is not in the registry.
        let lost = one_layer(&format!("lost {number}")).with_layer(0, |layer| with_urls(&s, kind, layer));
        let pushed = s.registry.push_manifest("urls/lost", media_type::OCI_MANIFEST, lost.manifest.clone());
        s.registry.tag("urls/lost", &number.to_string(), &pushed);
        s.registry.push_blob("urls/lost", lost.config.clone());
        let lost = format!("{}/urls/lost:{number}", s.registry.host());
        for imagelet in [s.own(), s.behind(), s.behind().global("--unsupported-images", "runtime")] {
            for (ok, said) in s.every_way(&imagelet, &present) {
                assert!(ok, "{kind}: {said}");
            }
            for (ok, said) in s.every_way(&imagelet, &lost) {
                assert!(!ok && said.contains("404 Not Found"), "{kind}: {said}");
            }
        }
    }
    assert!(s.elsewhere.requests().is_empty(), "{:?}", s.elsewhere.requests());
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn foreign_layer_type_grants_no_layer_of_another_tenant() {
    let s = Scene::new();
    let secret = LayerBuilder::new().file("secret", vec![7; 50_000]).build();
    let private = s.push("a/app", "1", &ImageBuilder::new().layer(secret.clone()).build());
    for imagelet in [s.own(), s.behind()] {
        imagelet.ok(&["pull", &private, "--creds", "a:of-tenant-a"]);
        for (number, kind) in [media_type::OCI_LAYER_GZIP, FOREIGN].into_iter().enumerate() {
            let own = LayerBuilder::new().file("bait", format!("bait {number}"));
            let image = ImageBuilder::new().layer(own).diff_ids(vec![secret.diff_id.clone()]).build();
            let image = image.with_layer(0, |layer| kind.clone_into(&mut layer.media_type));
            let name = s.push("b/steal", &number.to_string(), &image);
            for (ok, said) in s.every_way(&imagelet, &name) {
                assert!(!ok, "{kind}: {said}");
            }
        }
        assert!(!imagelet.ok(&["images"]).contains("b/steal"));
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn layers_that_cannot_be_unpacked_are_refused_by_name_of_the_setting() {
    let s = Scene::new();
    for (number, kind) in [ENCRYPTED, "application/vnd.example.layer"].into_iter().enumerate() {
        // The first layer is an ordinary one: otherwise it is no image.
        let layers = ["base", "top"].map(|seed| LayerBuilder::new().file(seed, format!("{seed} {number}")));
        let [base, top] = layers;
        let image = || ImageBuilder::new().layer(base.clone()).layer(top.clone()).build();
        let plain = image().with_layer(1, |layer| kind.clone_into(&mut layer.media_type));
        let urls = image().with_layer(1, |layer| with_urls(&s, kind, layer));
        let (plain, urls) =
            (s.push("odd/plain", &number.to_string(), &plain), s.push("odd/urls", &number.to_string(), &urls));
        for name in [&plain, &urls] {
            for (ok, said) in s.every_way(&s.own(), name) {
                assert!(!ok && said.contains(kind), "{said}");
            }
            for (ok, said) in s.every_way(&s.behind(), name) {
                assert!(!ok && said.contains(kind) && said.contains("unsupportedImages: runtime"), "{said}");
            }
        }
        let lenient = s.behind().global("--unsupported-images", "runtime");
        for (ok, said) in s.every_way(&lenient, &urls) {
            assert!(!ok && said.contains(kind) && said.contains("an image with urls"), "{said}");
        }
        let said = lenient.run(&["pull", &plain]).stderr;
        assert!(said.contains("the runtime pulls such images itself"), "{said}");
    }
    assert!(s.elsewhere.requests().is_empty(), "{:?}", s.elsewhere.requests());
    let policy = s.scratch.join("policy.json").display().to_string();
    for (flag, value) in [("--signature-policy", policy.as_str()), ("--pull-engine", "embedded")] {
        let contradiction = s.behind().global("--unsupported-images", "runtime").global(flag, value);
        let said = contradiction.fails(64, &["pull", "x"]);
        assert!(said.contains("unsupportedImages is runtime and "), "{said}");
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn an_image_for_a_handler_with_the_default_snapshotter_is_pulled_by_imagelet() {
    let s = Scene::new();
    let image = one_layer("handled");
    let name = s.push("handled/app", "1", &image);
    let socket = s.scratch.join("cri.sock");
    let mut agent = s.behind().serve(&socket);
    let pull = |handler: &str| {
        let endpoint = Endpoint::parse(&format!("unix://{}", socket.display())).expect("an endpoint");
        let mut sandbox = PodSandboxConfig::default();
        sandbox.annotations.insert("io.containerd.cri.runtime-handler".to_owned(), handler.to_owned());
        let request = PullImageRequest { sandbox: Some(sandbox), ..PullImageRequest::new(&name) };
        s.runtime.block_on(async {
            let service = connect_image_service(&endpoint, ClientOptions::default()).await.expect("connect");
            service.pull_image(request).await
        })
    };
    let error = pull("kata").expect_err("there is no such handler");
    assert!(error.message().contains("unknown runtime handler \"kata\""), "{error}");
    assert_eq!(pull("runc").expect("pulls"), image.id().to_string());
    let info =
        s.containerd.ctr().args(["snapshots", "info", &image.layers[0].diff_id.to_string()]).output().expect("ctr");
    assert!(String::from_utf8_lossy(&info.stdout).contains("imagelet.io/blob"), "{info:?}");
    agent.stop();
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn pods_of_an_agent_get_no_layer_by_urls() {
    let node = Node::new();
    let runtime = runtime();
    let (registry, elsewhere) = runtime.block_on(async { (TestRegistry::open().await, TestRegistry::open().await) });
    let image = one_layer("of a pod").with_layer(0, |layer| {
        FOREIGN.clone_into(&mut layer.media_type);
        layer.urls = vec![format!("http://{}/metadata", elsewhere.host())];
    });
    registry.push("urls/app", "1", &image);
    let name = format!("{}/urls/app:1", registry.host());
    let mut container = node.container("main", FOREVER);
    container["image"] = json!(name);
    node.write("urls.json", &node.pod("urls", json!({"terminationGracePeriodSeconds": 1, "containers": [container]})));
    node.eventually("the image is pulled", || {
        let images = Imagelet::remote(&node.containerd.endpoint()).ok(&["images", "-o", "json"]);
        images.contains(&image.id().to_string())
    });
    assert!(elsewhere.requests().is_empty(), "{:?}", elsewhere.requests());
    node.remove_all();
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn pods_of_an_agent_use_no_present_image_that_a_policy_refuses() {
    let directory = tempfile::tempdir().expect("a directory");
    let policy = directory.path().join("policy.json");
    std::fs::write(&policy, r#"{"default": [{"type": "reject"}]}"#).expect("writes");
    let node = Node::with(&json!({"signaturePolicy": policy.display().to_string()}));
    // The image is in containerd, which pulled it before there was a policy.
    for (pod, pull, reason) in
        [("never", "Never", "ErrImageNeverPull"), ("present", "IfNotPresent", "SignatureValidationFailed")]
    {
        let mut container = node.container("main", FOREVER);
        container["imagePullPolicy"] = json!(pull);
        let file = format!("{pod}.json");
        node.write(&file, &node.pod(pod, json!({"terminationGracePeriodSeconds": 1, "containers": [container]})));
        let said = node.waits(pod, "main", reason);
        assert!(pull == "Never" || said.contains("rejects it"), "{said}");
    }
    assert!(node.ran().is_empty(), "{:?}", node.ran());
    node.remove_all();
}
