//! The conformance suite of `cri-api` on the engine, one test for each rule.

use std::sync::Arc;

use async_trait::async_trait;
use cri_api::ImageService;
use cri_api::testing::conformance::{Harness, Hold, Identity};
use cri_api::testing::fixtures::{BASE_CONTENT, BASE_PATH, CONTENT_PATH, FixtureImage, IMAGES, NONCE_LABEL};
use registry::testing::{BuiltImage, BuiltIndex, Fault, LayerBuilder, TestRegistry};

use crate::support::{Node, image, layer};

struct EngineHarness {
    node: Node,
    registry: Arc<TestRegistry>,
    fixtures: Vec<(&'static FixtureImage, Identity)>,
}

fn build(fixture: &FixtureImage) -> BuiltImage {
    let file = |path: &str, content: &str| LayerBuilder::new().dir("conformance/").file(path, content).build();
    let (base, own) = (file(BASE_PATH, BASE_CONTENT), file(CONTENT_PATH, fixture.content));
    let with = |nonce: u32| {
        let mut image = image().layer(base.clone()).layer(own.clone()).label(NONCE_LABEL, &nonce.to_string());
        if !fixture.user.is_empty() {
            image = image.user(fixture.user);
        }
        image.build()
    };
    (0..).map(with).find(|image| image.id().hex().starts_with(fixture.id_prefix)).expect("some nonce does it")
}

async fn harness() -> EngineHarness {
    let node = Node::start().await;
    let registry = Arc::new(TestRegistry::open().await);
    let mut fixtures = Vec::new();
    for fixture in IMAGES {
        let image = build(fixture);
        let index = fixture.index.then(|| BuiltIndex::new(vec![image.clone()]));
        let mut digest = image.digest().clone();
        for (repository, tag) in fixture.names {
            digest = match &index {
                Some(index) => registry.push_index(repository, tag, index),
                None => registry.push(repository, tag, &image),
            };
        }
        fixtures.push((*fixture, Identity { id: image.id().clone(), digest }));
    }
    // Docker Hub is the same registry.
    let directory = node.directory.path().join("certs.d/docker.io");
    std::fs::create_dir_all(&directory).expect("creates");
    std::fs::write(directory.join("hosts.toml"), format!("server = \"{}\"\n", registry.url())).expect("writes");
    EngineHarness { node, registry, fixtures }
}

#[async_trait]
impl Harness for EngineHarness {
    fn name(&self) -> &str {
        "embedded engine"
    }

    fn service(&self) -> Arc<dyn ImageService> {
        Arc::new(self.node.engine.clone())
    }

    fn domain(&self) -> String {
        self.registry.host()
    }

    fn other_domain(&self) -> Option<String> {
        Some(format!("localhost:{}", self.registry.addr().port()))
    }

    fn serves_default_domain(&self) -> bool {
        true
    }

    fn identity(&self, fixture: &FixtureImage) -> Option<Identity> {
        self.fixtures.iter().find(|(f, _)| *f == fixture).map(|(_, identity)| identity.clone())
    }

    async fn move_tag(&self, repository: &str, tag: &str, to: &FixtureImage) -> bool {
        let image = build(to);
        self.registry.push(repository, tag, &image);
        true
    }

    fn hold_pulls(&self) -> Option<Hold> {
        self.registry.clear_requests();
        self.registry.faults().always("/blobs/", Fault::Hang);
        let (asked, released) = (Arc::clone(&self.registry), Arc::clone(&self.registry));
        let reached = async move {
            while asked.requests_for("/blobs/").is_empty() {
                tokio::task::yield_now().await;
            }
        };
        let engine = self.node.engine.clone();
        let hold = Hold::new(reached, move || released.faults().clear());
        Some(hold.with_given_up(async move { engine.settled().await }))
    }

    fn reports_progress(&self) -> bool {
        true
    }

    fn runtime_handlers(&self) -> Option<Vec<String>> {
        Some(Vec::new())
    }
}

cri_api::image_service_conformance!(harness);

#[tokio::test(flavor = "multi_thread")]
async fn the_engine_conforms_to_the_other_half_of_the_waist() {
    let node = Node::start().await;
    let base = layer("a/x", 1, 100_000).build();
    for (name, seed) in [("one", 2), ("two", 3)] {
        let image = image().layer(base.clone()).layer(layer("b/y", seed, 30_000)).build();
        node.registry.push(name, "v1", &image);
    }
    let engine = Arc::new(node.engine.clone());
    let names = [node.name("one:v1"), node.name("two:v1")];
    let scratch = node.directory.path().join("scratch");
    std::fs::create_dir(&scratch).expect("creates");
    let bench = cri_api::engine::testing::Bench { service: Arc::clone(&engine) as _, engine, names, scratch };
    cri_api::engine::testing::run_all(&bench).await;
}
