//! Pulls that stall.

use async_trait::async_trait;
use cri_api::{FsInfo, Image, ImageFilter, ImageStatus, LayerState, PullEvent, PullImageRequest};
use oci::Digest;

use super::*;

/// Tells a second of its progress each second, and is done when there is no more of it.
struct Script(Vec<Vec<PullEvent>>);

#[async_trait]
impl ImageService for Script {
    async fn list_images(&self, _: Option<&ImageFilter>) -> cri_api::Result<Vec<Image>> {
        Ok(Vec::new())
    }

    async fn image_status(&self, _: &ImageSpec, _: bool) -> cri_api::Result<ImageStatus> {
        Ok(ImageStatus::default())
    }

    async fn pull_image(&self, request: PullImageRequest) -> cri_api::Result<String> {
        for second in &self.0 {
            for event in second {
                request.progress.report(event.clone());
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Ok("sha256:pulled".to_owned())
    }

    async fn remove_image(&self, _: &ImageSpec) -> cri_api::Result<()> {
        Ok(())
    }

    async fn image_fs_info(&self) -> cri_api::Result<FsInfo> {
        Ok(FsInfo::default())
    }
}

fn layer() -> Digest {
    Digest::sha256(b"layer")
}

fn fetching() -> Vec<PullEvent> {
    let resolved = PullEvent::Resolved { digest: Digest::sha256(b"manifest"), layers: vec![(layer(), 9000)] };
    vec![resolved, PullEvent::Layer { digest: layer(), state: LayerState::Fetching }]
}

fn done(done: u64) -> Vec<PullEvent> {
    vec![PullEvent::Bytes { digest: layer(), done }]
}

/// Pulls by the script, with two candidates; answers how it ended, and after how many seconds.
async fn pull(script: Vec<Vec<PullEvent>>, options: PullerOptions) -> (Outcome, u64) {
    let mut rig = Rig::on(FakeImageService::new(), Arc::new(Script(script)), options);
    let begun = Instant::now();
    rig.start(with("a:1", [candidate("ada", "one", "one"), candidate("ada", "two", "two")])).await;
    let outcome = rig.outcomes().await.pop().expect("one");
    (outcome, begun.elapsed().as_secs())
}

fn deadline(outcome: Outcome) -> String {
    let Err(PullFailed::Attempts(failure)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.attempts().len(), 1, "the next credential would be as slow");
    assert_eq!(failure.attempts()[0].error.kind(), Kind::DeadlineExceeded);
    failure.to_string()
}

#[tokio::test(start_paused = true)]
async fn a_pull_that_stalls_ends() {
    let options = PullerOptions { progress_deadline: Some(Duration::from_secs(20)), ..free() };
    let script = || [vec![fetching(), done(10), done(20)], vec![Vec::new(); 300]].concat();
    let (outcome, seconds) = pull(script(), options).await;
    let text = "the pull made no progress for 20s (imagePullProgressDeadline: 20s); 20 of 9000 bytes had come";
    assert_eq!((deadline(outcome).as_str(), seconds), (text, 22));
    let (outcome, seconds) = pull(script(), free()).await;
    assert_eq!((outcome.expect("without a limit it may").used, seconds), (Some(0), 303));
}

#[tokio::test(start_paused = true)]
async fn a_registry_that_does_not_say_what_a_name_stands_for_ends_the_pull() {
    let options = PullerOptions { progress_deadline: Some(Duration::from_secs(20)), ..free() };
    let (outcome, seconds) = pull([vec![vec![PullEvent::Resolving]], vec![Vec::new(); 300]].concat(), options).await;
    let text = "the pull made no progress for 20s (imagePullProgressDeadline: 20s); the registry had not said what the \
                name stands for";
    assert_eq!((deadline(outcome).as_str(), seconds), (text, 20));
}

#[tokio::test(start_paused = true)]
async fn a_service_that_tells_nothing_may_take_its_time() {
    let options = PullerOptions { progress_deadline: Some(Duration::from_secs(20)), ..free() };
    let (outcome, seconds) = pull(vec![Vec::new(); 300], options).await;
    assert_eq!((outcome.expect("pulled").pulling.as_secs(), seconds), (300, 300));
    // Neither may one that commits for long.
    let script = [vec![fetching(), vec![PullEvent::Committing]], vec![Vec::new(); 300]].concat();
    assert!(pull(script, options).await.0.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_trickling_pull_continues() {
    let options = PullerOptions { progress_deadline: Some(Duration::from_secs(20)), ..free() };
    let script = [vec![fetching()], (1..90).map(done).collect()].concat();
    let (outcome, seconds) = pull(script, options).await;
    assert!(outcome.is_ok(), "{outcome:?}");
    assert_eq!(seconds, 90);
}
