//! The conformance suite on client → socket → server → fake: nothing of an image service is lost on the wire.

use std::sync::Arc;

use async_trait::async_trait;
use cri_api::ImageService;
use cri_api::testing::conformance::{Harness, Hold, Identity};
use cri_api::testing::fixtures::FixtureImage;
use cri_api::testing::{CallKind, FakeImage, FakeImageService};

use super::support::Running;
use crate::client::RemoteImageService;

const DOMAIN: &str = "registry.test:5000";

struct Wired {
    fake: FakeImageService,
    client: RemoteImageService,
    _server: Running,
}

async fn wired() -> Wired {
    let fake = FakeImageService::new();
    for domain in [DOMAIN, "mirror.test", "docker.io"] {
        fake.publish_fixtures(domain);
    }
    fake.know_only_handlers(&["kata"]);
    let server = Running::fake(&fake);
    Wired { client: server.client().await, fake, _server: server }
}

#[async_trait]
impl Harness for Wired {
    fn name(&self) -> &str {
        "fake behind a socket"
    }

    fn service(&self) -> Arc<dyn ImageService> {
        Arc::new(self.client.clone())
    }

    fn domain(&self) -> String {
        DOMAIN.into()
    }

    fn other_domain(&self) -> Option<String> {
        Some("mirror.test".into())
    }

    fn serves_default_domain(&self) -> bool {
        true
    }

    fn identity(&self, fixture: &FixtureImage) -> Option<Identity> {
        let image = FakeImage::of_fixture(fixture);
        Some(Identity { id: image.id(), digest: image.digest() })
    }

    async fn move_tag(&self, repository: &str, tag: &str, to: &FixtureImage) -> bool {
        self.fake.publish(&format!("{DOMAIN}/{repository}:{tag}"), &FakeImage::of_fixture(to));
        true
    }

    fn hold_pulls(&self) -> Option<Hold> {
        let gate = self.fake.faults().hold(CallKind::PullImage);
        let fake = self.fake.clone();
        let reached = gate.clone();
        let reached = async move { reached.until_arrived(1).await };
        let hold = Hold::new(reached, move || fake.faults().clear(CallKind::PullImage));
        // The end of a call crosses the socket as well: it is over when the service has let go.
        Some(hold.with_given_up(async move { gate.until_waiting(0).await }))
    }

    fn runtime_handlers(&self) -> Option<Vec<String>> {
        Some(vec!["kata".into()])
    }
}

cri_api::image_service_conformance!(wired);
