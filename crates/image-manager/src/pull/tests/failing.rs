//! Attempts that fail, services that panic, and the end.

use base::lock::Mutex;

use async_trait::async_trait;
use cri_api::{FsInfo, Image, ImageFilter, ImageStatus, PullImageRequest};

use super::*;

#[tokio::test(start_paused = true)]
async fn candidates_are_tried_in_order_and_every_cause_is_kept() {
    let mut rig = Rig::new(free());
    rig.fake.require_auth("a:1", RegistryAuth::basic("ada", "right"));
    let tries = |passwords: &[&str]| with("a:1", passwords.iter().map(|password| candidate("ada", password, password)));
    rig.start(tries(&["wrong", "right", "worse"])).await;
    let pulled = rig.outcomes().await.pop().expect("one").expect("the second fits");
    assert_eq!((pulled.used, pulled.found, pulled.coalesced), (Some(1), false, false));
    assert!(pulled.size.is_some_and(|size| size > 1000));
    assert_eq!(rig.pulled().len(), 2);

    rig.start(tries(&["wrong", "worse"])).await;
    let Some(Err(PullFailed::Attempts(failure))) = rig.outcomes().await.pop() else { panic!("none fits") };
    let sources: Vec<_> =
        failure.attempts().iter().map(|attempt| attempt.source.as_ref().map(Source::to_string)).collect();
    assert_eq!(sources, [Some("secret shop/wrong".to_owned()), Some("secret shop/worse".to_owned())]);

    rig.ask("b:1").await;
    let pulled = rig.outcomes().await.pop().expect("one").expect("anonymous");
    assert_eq!(pulled.used, None);
    rig.ask("a:1").await;
    let Some(Err(PullFailed::Attempts(failure))) = rig.outcomes().await.pop() else { panic!("it wants a credential") };
    assert_eq!(failure.attempts().len(), 1);
    assert_eq!(failure.attempts()[0].source, None);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_size_changes_nothing() {
    let mut rig = Rig::new(free());
    rig.fake.faults().fail(CallKind::ImageStatus, Error::new(Kind::Internal, "no status"));
    rig.ask("a:1").await;
    assert_eq!(rig.outcomes().await.pop().expect("one").expect("pulled").size, None);
}

/// Panics at the first pull.
struct Panicking(FakeImageService, Mutex<bool>);

#[async_trait]
impl ImageService for Panicking {
    async fn list_images(&self, filter: Option<&ImageFilter>) -> cri_api::Result<Vec<Image>> {
        self.0.list_images(filter).await
    }

    async fn image_status(&self, image: &ImageSpec, verbose: bool) -> cri_api::Result<ImageStatus> {
        self.0.image_status(image, verbose).await
    }

    async fn pull_image(&self, request: PullImageRequest) -> cri_api::Result<String> {
        let result = self.0.pull_image(request).await;
        assert!(!std::mem::take(&mut *self.1.lock()), "a service that fails");
        result
    }

    async fn remove_image(&self, image: &ImageSpec) -> cri_api::Result<()> {
        self.0.remove_image(image).await
    }

    async fn image_fs_info(&self) -> cri_api::Result<FsInfo> {
        self.0.image_fs_info().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_panics_is_an_error_and_frees_the_turn() {
    let rig = Rig::new(free());
    let service = Panicking(rig.fake.clone(), Mutex::new(true));
    let mut rig = Rig::on(rig.fake, Arc::new(service), serial());
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    rig.ask("a:1").await;
    rig.ask("a:1").await;
    gate.until_waiting(1).await;
    gate.open();
    for outcome in rig.outcomes().await {
        let Err(PullFailed::Attempts(failure)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(failure.attempts()[0].error.kind(), Kind::Internal);
        assert_eq!(failure.to_string(), "the pull panicked: this is a fault of the program");
    }
    assert_eq!((rig.puller.pulls.len(), rig.puller.turns.waiting()), (0, 0));
    rig.ask("b:1").await;
    let next = tokio::time::timeout(Duration::from_secs(10), rig.outcomes()).await.expect("the turn is free again");
    assert_eq!(next.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn at_the_end_every_pull_ends() {
    let mut rig = Rig::new(serial());
    let gate = rig.fake.faults().hold(CallKind::PullImage);
    rig.ask("a:1").await;
    rig.ask("b:1").await;
    let left = rig.ask("c:1").await;
    gate.until_waiting(1).await;
    left.abort();
    rig.puller.shutdown().await;
    assert_eq!(rig.fake.abandoned_pulls(), 1);
    for outcome in rig.outcomes().await {
        assert!(matches!(outcome, Err(PullFailed::ShuttingDown)), "{outcome:?}");
    }
    let late = rig.puller.pull(Wanted::new(ImageSpec::new("d:1"))).await;
    assert!(matches!(late, Err(PullFailed::ShuttingDown)), "{late:?}");
    assert_eq!((rig.pulled().len(), rig.puller.pulls.len()), (1, 0));
}
