//! The puller on the fake service: the rig, and one module per topic.

use std::time::Duration;

use credentials::{Candidate, SecretCoordinates, Source};
use cri_api::testing::{Call, CallKind, FakeImage, FakeImageService};
use oci::RegistryAuth;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use cri_api::ImageSpec;

use super::*;

mod counting;
mod failing;
mod limits;
mod recording;
mod sharing;
mod slow;
mod watching;

const LINGER: Duration = Duration::from_secs(5);

/// All at once, no rate, a linger of five seconds.
fn free() -> PullerOptions {
    PullerOptions { serialize: false, qps: 0.0, linger: LINGER, ..PullerOptions::default() }
}

fn board() -> PullBoard {
    PullBoard::new(Arc::new(Instant::now), Arc::new(|| jiff::Timestamp::UNIX_EPOCH))
}

fn serial() -> PullerOptions {
    PullerOptions { serialize: true, ..free() }
}

type Outcome = Result<Pulled, PullFailed>;

/// A puller on a fake which offers `a:1` to `e:1` and `reg.example/…` and `other.example/…` of the same names.
struct Rig {
    fake: FakeImageService,
    puller: Arc<Puller>,
    tasks: JoinSet<Outcome>,
}

impl Rig {
    fn new(options: PullerOptions) -> Self {
        let fake = FakeImageService::new();
        for registry in ["", "reg.example/", "other.example/"] {
            for name in ["a", "b", "c", "d", "e"] {
                fake.publish(&format!("{registry}{name}:1"), &FakeImage::new(name).sized(1000));
            }
        }
        Self::on(fake.clone(), Arc::new(fake), options)
    }

    fn on(fake: FakeImageService, service: Arc<dyn ImageService>, options: PullerOptions) -> Self {
        let puller = Puller::new(service, None, options, Arc::new(Instant::now), Metrics::new(), board());
        Self { fake, puller, tasks: JoinSet::new() }
    }

    /// Starts a request and returns when it waits for its job, or is done.
    async fn start(&mut self, wanted: Wanted) -> AbortHandle {
        let seats = |puller: &Puller| puller.pulls.waiters();
        let before = seats(&self.puller);
        let puller = Arc::clone(&self.puller);
        let handle = self.tasks.spawn(async move { puller.pull(wanted).await });
        while seats(&self.puller) == before && !handle.is_finished() {
            tokio::task::yield_now().await;
        }
        handle
    }

    /// Starts a request for a name.
    async fn ask(&mut self, image: &str) -> AbortHandle {
        self.start(Wanted::new(ImageSpec::new(image))).await
    }

    /// Returns the outcomes of the requests that were not cancelled, in order of completion.
    async fn outcomes(&mut self) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        while let Some(joined) = self.tasks.join_next().await {
            match joined {
                Ok(outcome) => outcomes.push(outcome),
                Err(error) => assert!(error.is_cancelled(), "{error}"),
            }
        }
        outcomes
    }

    /// The names that were pulled, in order.
    fn pulled(&self) -> Vec<String> {
        let name = |call| match call {
            Call::PullImage(spec, _) => Some(spec.image),
            _ => None,
        };
        self.fake.calls().into_iter().filter_map(name).collect()
    }
}

/// Lets everything run that can, without any time passing.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

fn candidate(user: &str, password: &str, secret: &str) -> Candidate {
    let source = Source::Secret(SecretCoordinates {
        namespace: "shop".into(),
        name: secret.into(),
        uid: format!("uid-{secret}"),
        ..SecretCoordinates::default()
    });
    Candidate { auth: RegistryAuth::basic(user, password), source, hash: format!("{user}-hash") }
}

fn with(image: &str, candidates: impl IntoIterator<Item = Candidate>) -> Wanted {
    Wanted { candidates: candidates.into_iter().collect(), ..Wanted::new(ImageSpec::new(image)) }
}
