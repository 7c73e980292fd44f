//! The requests of one follower: a client for kube's watcher that keeps the bounds which the watcher does not. Watches have lengths of
//! their own, so that those of many nodes do not end together, and an end if the server does not end them. Watches that end at once
//! wait before the next one. A renewed client is used at once. A streaming list is as recent as a plain one, and begins again if an
//! object is deleted before its end, which the watcher would overlook. Called by [`super::observe`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use kube::client::Body;
use kube::core::WatchEvent;
use serde::de::IgnoredAny;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::BoxError;

use super::pace::Pace;
use crate::client::ClusterClient;

/// Requested duration of a watch, plus or minus a third.
const WATCH: Duration = Duration::from_secs(450);
/// The longest watch that is asked for, in seconds.
pub(super) const LONGEST_WATCH: u32 = 600;
/// Time by which a watch may exceed its requested duration.
const OVERTIME: Duration = Duration::from_secs(30);
/// Time after which a streaming list counts as not supported.
pub(super) const LIST: Duration = Duration::from_secs(30);
/// The annotation of the bookmark behind the last object of a streaming list.
const END_OF_LIST: &str = "k8s.io/initial-events-end";

/// Returns a client for one watcher.
pub(super) fn client(client: &ClusterClient, pace: &Arc<Pace>) -> kube::Client {
    let (client, pace) = (client.clone(), Arc::clone(pace));
    let service = tower::service_fn(move |request: Request<Body>| send(client.clone(), Arc::clone(&pace), request));
    kube::Client::new(service, "default")
}

/// Sends a request without a body; again, if the client is renewed before its answer begins.
async fn send(
    client: ClusterClient,
    pace: Arc<Pace>,
    request: Request<Body>,
) -> Result<Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError> {
    let mut renewals = client.renewals();
    let (mut parts, _) = request.into_parts();
    let watch = Watch::of(&parts.uri, pace.near(WATCH, 1.0 / 3.0).as_secs())?;
    if let Some(watch) = &watch {
        parts.uri = watch.uri.clone();
        tokio::select! {
            () = tokio::time::sleep(pace.before_watch()) => {}
            Ok(()) = renewals.changed() => pace.progress(),
        }
        pace.begin();
    }
    let answer = loop {
        let request = Request::from_parts(parts.clone(), Body::empty());
        let current = client.current();
        tokio::select! {
            biased;
            Ok(()) = renewals.changed() => {}
            answer = current.send(request) => break answer?,
        }
    };
    Ok(answer.map(|body| {
        let now = Instant::now();
        let until = watch.as_ref().map(|watch| now + watch.duration + OVERTIME);
        let list = watch.as_ref().filter(|watch| watch.is_list).map(|_| StreamingList::until(now + LIST));
        let answer = Answer { body, is_watch: watch.is_some(), until, list, renewals, pace };
        let frames = futures::stream::unfold(answer, |mut answer| async move { Some((answer.frame().await?, answer)) });
        StreamBody::new(frames).boxed_unsync()
    }))
}

/// A watch that is asked for.
#[derive(Debug)]
struct Watch {
    uri: Uri,
    duration: Duration,
    /// True if it begins with all objects.
    is_list: bool,
}

impl Watch {
    /// Returns the watch that a request is for, with this length; `None` for another request.
    fn of(uri: &Uri, seconds: u64) -> Result<Option<Self>, http::uri::InvalidUri> {
        let pairs: Vec<&str> = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()).collect();
        if !pairs.contains(&"watch=true") {
            return Ok(None);
        }
        let is_list = pairs.contains(&"sendInitialEvents=true");
        // Version 0 is any version that a cache has, which may be older than the objects that were already received.
        let is_replaced = |pair: &str| pair.starts_with("timeoutSeconds=") || is_list && pair == "resourceVersion=0";
        let kept = pairs.into_iter().filter(|pair| !is_replaced(pair));
        let mut path = format!("{}?timeoutSeconds={seconds}", uri.path());
        kept.for_each(|pair| path.extend(["&", pair]));
        Ok(Some(Self { uri: path.parse()?, duration: Duration::from_secs(seconds), is_list }))
    }
}

/// The body of an answer.
struct Answer {
    body: Body,
    is_watch: bool,
    /// End of the body, whether the server ends it or not.
    until: Option<Instant>,
    /// The list at the beginning of a watch; `None` behind its end.
    list: Option<StreamingList>,
    renewals: watch::Receiver<u64>,
    pace: Arc<Pace>,
}

impl Answer {
    async fn frame(&mut self) -> Option<Result<Frame<Bytes>, BoxError>> {
        let until = self.list.as_ref().map(|list| list.until).or(self.until);
        let over = async move {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let frame = tokio::select! {
            biased;
            // A renewed client has other credentials, and other connections.
            Ok(()) = self.renewals.changed() => {
                self.pace.forget_watch();
                return (!self.is_watch).then(|| Err("the credentials of this node were renewed".into()));
            }
            () = over => {
                return self.list.as_ref().map(|_| {
                    self.pace.list_is_endless();
                    Err("the streaming list has no end".into())
                });
            }
            frame = self.body.frame() => frame?,
        };
        if let (Some(list), Ok(Some(data))) = (&mut self.list, frame.as_ref().map(Frame::data_ref)) {
            match list.read(data) {
                ListState::Open => {}
                ListState::Ended => self.list = None,
                ListState::Deleted => return None,
            }
        }
        Some(frame.map_err(Into::into))
    }
}

#[derive(Debug, PartialEq, Eq)]
enum ListState {
    Open,
    Ended,
    /// An object was deleted before the end.
    Deleted,
}

/// The events of a streaming list up to its end.
struct StreamingList {
    until: Instant,
    /// The event that has not arrived as a whole.
    line: Vec<u8>,
}

impl StreamingList {
    fn until(until: Instant) -> Self {
        Self { until, line: Vec::new() }
    }

    fn read(&mut self, data: &[u8]) -> ListState {
        for part in data.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if !part.ends_with(b"\n") {
                break;
            }
            match serde_json::from_slice(&std::mem::take(&mut self.line)) {
                Ok(WatchEvent::<IgnoredAny>::Deleted(_)) => return ListState::Deleted,
                Ok(WatchEvent::Bookmark(bookmark)) if bookmark.metadata.annotations.contains_key(END_OF_LIST) => {
                    return ListState::Ended;
                }
                // An event that cannot be read is the watcher's to report.
                _ => {}
            }
        }
        ListState::Open
    }
}

#[cfg(test)]
#[path = "requests_tests.rs"]
mod tests;
