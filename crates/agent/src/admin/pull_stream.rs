//! [`answer`]: a call whose answer is a stream of events, if the client accepts one: its progress, and its end. A reader that is slower
//! than the call may miss progress, but no change of a layer's state. Called by the routes of images and of the store.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use cri_api::engine::{CheckProgress, CheckSink};
use cri_api::{ProgressSink, PullEvent};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::access::Caller;
use super::pull_routes::{event, event_stream, keep_alive};
use super::state::{Admin, Answer, Refusal, json};
use super::stream_quota::StreamPlace;

/// Events that wait for a slow reader.
const WAITING: usize = 1024;
/// Of these, how many places are kept for changes of a state.
const KEPT: usize = WAITING / 2;
/// A reader receives a keep-alive at least this often.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A call and the events that were not read yet.
struct ProgressStream<P> {
    events: mpsc::Receiver<P>,
    /// Returns the last event.
    call: Option<Pin<Box<dyn Future<Output = Bytes> + Send>>>,
    /// The end, which follows the last event.
    end: Option<Bytes>,
    stop: CancellationToken,
    _place: StreamPlace,
}

/// Where a call reports its progress; `None` if the client does not read it.
pub(super) type Progress<P> = Option<mpsc::Sender<P>>;

/// The progress of a pull or an import.
pub(super) fn pull_sink(progress: Progress<PullEvent>) -> ProgressSink {
    let Some(sender) = progress else { return ProgressSink::default() };
    ProgressSink::new(move |event| {
        let is_small = matches!(event, PullEvent::Bytes { .. } | PullEvent::Unpacked { .. });
        if !is_small || sender.capacity() > KEPT {
            // A reader that is this slow still receives the end.
            let _ = sender.try_send(event);
        }
    })
}

/// The progress of a check.
pub(super) fn check_sink(progress: Progress<CheckProgress>) -> CheckSink {
    let Some(sender) = progress else { return CheckSink::default() };
    // Later progress replaces what does not fit.
    CheckSink::new(move |progress| {
        let _ = sender.try_send(progress);
    })
}

/// Returns the answer of a call: its result, or a stream of `progress` with a last event `end` or `error`. The call runs as long as the
/// answer is read.
pub(super) async fn answer<P, T, F>(
    state: &Arc<Admin>,
    caller: Caller,
    headers: &HeaderMap,
    end: &'static str,
    call: impl FnOnce(Arc<Admin>, Progress<P>) -> F,
) -> Answer
where
    P: Serialize + Send + 'static,
    T: Serialize,
    F: Future<Output = Result<T, Refusal>> + Send + 'static,
{
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect::<Vec<_>>().join(",");
    if !accepts.contains("text/event-stream") {
        return json(&call(Arc::clone(state), None).await?);
    }
    let _place = state.streams.place(caller.user, caller.may_change)?;
    let (sender, events) = mpsc::channel(WAITING);
    let (call, stop) = (call(Arc::clone(state), Some(sender)), state.stop.clone());
    let ending = stop.clone();
    let call = Box::pin(async move {
        match call.await {
            Ok(result) => event(end, None, &result),
            // An error that follows from the end of the process is none of the call.
            Err(_) if ending.is_cancelled() => event("error", None, &Refusal::ends().error),
            Err(refusal) => event("error", None, &refusal.error),
        }
    });
    let stream = ProgressStream { events, call: Some(call), end: None, stop, _place };
    Ok(event_stream(futures::stream::unfold(stream, async |mut stream| Some((stream.next().await?, stream)))))
}

impl<P: Serialize> ProgressStream<P> {
    async fn next(&mut self) -> Option<Bytes> {
        let Some(call) = &mut self.call else {
            return match self.events.try_recv() {
                Ok(progress) => Some(event("progress", None, &progress)),
                Err(_) => self.end.take(),
            };
        };
        let end = tokio::select! {
            biased;
            () = self.stop.cancelled() => event("error", None, &Refusal::ends().error),
            Some(progress) = self.events.recv() => return Some(event("progress", None, &progress)),
            end = call => end,
            () = tokio::time::sleep(KEEP_ALIVE) => return Some(keep_alive()),
        };
        self.call = None;
        self.end = Some(end);
        match self.events.try_recv() {
            Ok(progress) => Some(event("progress", None, &progress)),
            Err(_) => self.end.take(),
        }
    }
}
