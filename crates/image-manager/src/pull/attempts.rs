//! [`Attempts`]: tries one credential after the other until a pull succeeds, and gives a pull up that stalls.
//! It does not choose credentials and does not log them.

use std::sync::Arc;
use std::time::Duration;

use credentials::Candidate;
use cri_api::{Error, ImageService, Kind, PullImageRequest, Reason};

use super::monitor::ProgressMonitor;
use super::throttle::Throttle;
use crate::Cause;

/// A failed attempt.
#[derive(Clone, Debug)]
pub(super) struct Try {
    /// Which candidate it was; `None`: anonymous.
    pub(super) candidate: Option<usize>,
    pub(super) error: Error,
}

/// Every attempt failed.
pub(super) struct Failed {
    pub(super) tries: Arc<[Try]>,
    /// True if the last attempt was cancelled: its service may not have noticed that yet.
    pub(super) given_up: bool,
}

impl Failed {
    /// Returns true if a service may have made the image present all the same: it did not report the cause of its failure.
    pub(super) fn may_have_pulled(&self) -> bool {
        self.tries.iter().any(|attempt| {
            matches!(
                attempt.error.kind(),
                Kind::Unavailable | Kind::DeadlineExceeded | Kind::Cancelled | Kind::Internal | Kind::Unknown
            )
        })
    }
}

/// The services and limits of the attempts of a pull.
pub(super) struct Attempts<'a> {
    pub(super) service: &'a dyn ImageService,
    pub(super) throttle: &'a Throttle,
    pub(super) monitor: &'a ProgressMonitor,
    /// Longest time without progress; `None`: no limit.
    pub(super) stall_limit: Option<Duration>,
}

/// Logs the credentials that were refused before a later one worked: this pull returns no error that would name them.
fn name_refused(image: &str, tries: &[Try], candidates: &[Candidate], used: usize) {
    let source = |index: usize| candidates.get(index).map(|candidate| candidate.source.to_string()).unwrap_or_default();
    for Try { candidate, error } in tries {
        let refused = candidate.map(source).unwrap_or_default();
        tracing::warn!("{image}: {refused} did not work, {} did: {}", source(used), error.message());
    }
}

impl Attempts<'_> {
    /// Pulls with each candidate in turn, or anonymously where there is none. Answers the image ref and which candidate
    /// worked, or every cause. The first attempt's token is the caller's to take.
    pub(super) async fn make(
        &self,
        request: &PullImageRequest,
        candidates: &[Candidate],
    ) -> Result<(String, Option<usize>), Failed> {
        let (mut tries, mut given_up) = (Vec::new(), false);
        let request_name = request.image.image.clone();
        for index in 0..candidates.len().max(1) {
            let candidate = candidates.get(index).map(|_| index);
            if index > 0 {
                // However long it takes: a pull does not fail half-way because others begin. A bucket that never holds a
                // token has refused the first attempt.
                let _ = self.throttle.pass(Duration::MAX).await;
                self.monitor.reset();
            }
            let auth = candidates.get(index).map(|candidate| candidate.auth.clone());
            let request = PullImageRequest { auth, progress: self.monitor.sink(), ..request.clone() };
            let stalled = tokio::select! {
                result = self.service.pull_image(request) => match result {
                    Ok(image_ref) => {
                        name_refused(&request_name, &tries, candidates, index);
                        return Ok((image_ref, candidate));
                    }
                    Err(error) => {
                        // A full disk and a damaged image are the same for the next credential.
                        let is_final = Cause::of(&error) == Cause::DiskFull
                            || error.kind() == Kind::DataLoss && error.reason() == Some(Reason::InvalidContent);
                        tries.push(Try { candidate, error });
                        if is_final {
                            break;
                        }
                        continue;
                    }
                },
                stalled = self.monitor.stalled(self.stall_limit) => stalled,
            };
            // The next credential would stall as well.
            tries.push(Try { candidate, error: Error::new(Kind::DeadlineExceeded, stalled.to_string()) });
            given_up = true;
            break;
        }
        Err(Failed { tries: tries.into(), given_up })
    }
}
