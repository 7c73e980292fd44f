//! The fake as a harness of the conformance suite. Used by the tests of this crate.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use cri_api::ImageService;
use cri_api::testing::conformance::{Deviation, Harness, Hold, Identity};
use cri_api::testing::fixtures::{self, FixtureImage};
use cri_api::testing::{CallKind, FakeImage, FakeImageService};

use crate::saboteur::{Sabotage, Saboteur};

pub(crate) const DOMAIN: &str = "registry.test:5000";

/// The fake, plain or behind a saboteur.
pub(crate) struct FakeHarness {
    pub(crate) fake: FakeImageService,
    pub(crate) service: Arc<dyn ImageService>,
    pub(crate) deviations: Vec<Deviation>,
    pub(crate) tells_given_up: bool,
}

impl FakeHarness {
    pub(crate) fn new() -> Self {
        let fake = FakeImageService::new();
        for domain in [DOMAIN, "mirror.test", "docker.io"] {
            fake.publish_fixtures(domain);
        }
        fake.know_only_handlers(&["kata"]);
        Self { service: Arc::new(fake.clone()), fake, deviations: Vec::new(), tells_given_up: true }
    }

    pub(crate) fn sabotaged(sabotage: Sabotage) -> Self {
        let mut harness = Self::new();
        harness.tells_given_up = false;
        harness.service = Arc::new(Saboteur::new(harness.fake.clone(), sabotage));
        harness
    }
}

#[async_trait]
impl Harness for FakeHarness {
    fn name(&self) -> &str {
        "fake"
    }

    fn service(&self) -> Arc<dyn ImageService> {
        Arc::clone(&self.service)
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
        // Asked for very often, and always the same.
        static KNOWN: LazyLock<BTreeMap<&str, Identity>> = LazyLock::new(|| {
            let identity = |image: FakeImage| Identity { id: image.id(), digest: image.digest() };
            fixtures::IMAGES.iter().map(|f| (f.content, identity(FakeImage::of_fixture(f)))).collect()
        });
        KNOWN.get(fixture.content).cloned()
    }

    async fn move_tag(&self, repository: &str, tag: &str, to: &FixtureImage) -> bool {
        self.fake.publish(&format!("{DOMAIN}/{repository}:{tag}"), &FakeImage::of_fixture(to));
        true
    }

    fn hold_pulls(&self) -> Option<Hold> {
        let gate = self.fake.faults().hold(CallKind::PullImage);
        let fake = self.fake.clone();
        let reached = gate.clone();
        let hold = Hold::new(async move { reached.until_arrived(1).await }, move || {
            fake.faults().clear(CallKind::PullImage);
        });
        // A saboteur that continues alone must be detected by the image that becomes visible, not by a hang here.
        Some(if self.tells_given_up { hold.with_given_up(async move { gate.until_waiting(0).await }) } else { hold })
    }

    fn runtime_handlers(&self) -> Option<Vec<String>> {
        Some(vec!["kata".into()])
    }

    fn reports_progress(&self) -> bool {
        true
    }

    fn deviations(&self) -> &[Deviation] {
        &self.deviations
    }

    fn case_timeout(&self) -> std::time::Duration {
        std::time::Duration::from_secs(5)
    }
}
