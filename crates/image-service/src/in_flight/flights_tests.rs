//! The table of jobs: joining, leaving, failing.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::oneshot;

fn flights() -> (Flights<&'static str, u32>, TaskTracker, CancellationToken) {
    let (tracker, token) = (TaskTracker::new(), CancellationToken::new());
    (Flights::new(tracker.clone(), token.clone()), tracker, token)
}

#[tokio::test]
async fn one_job_for_all() {
    let (flights, ..) = flights();
    let runs = Arc::new(AtomicUsize::new(0));
    let (go, gate) = oneshot::channel::<()>();
    let count = Arc::clone(&runs);
    let mut first = flights.join(&"a", |_| async move {
        count.fetch_add(1, Ordering::Relaxed);
        gate.await.expect("told to go");
        Ok(7)
    });
    let mut second = flights.join(&"a", |_| async { unreachable!("joined") });
    assert!(first.led && !second.led);
    go.send(()).expect("waits");
    assert_eq!((first.wait().await, second.wait().await), (Ok(7), Ok(7)));
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    assert_eq!(flights.len(), 0);
}

#[tokio::test]
async fn the_last_to_leave_cancels() {
    let (flights, tracker, _) = flights();
    let (told, heard) = oneshot::channel();
    let first = flights.join(&"a", |context| async move {
        context.token.cancelled().await;
        told.send(()).expect("heard");
        Err(Error::new(Kind::Cancelled, "gone"))
    });
    let token = first.ticket.shared().token.clone();
    let second = flights.join(&"a", |_| async { unreachable!("joined") });
    drop(first);
    assert!(!token.is_cancelled());
    drop(second);
    heard.await.expect("cancelled");
    // The next one starts afresh, even while the old one ends.
    let mut third = flights.join(&"a", |_| async { Ok(1) });
    assert!(third.led);
    assert_eq!(third.wait().await, Ok(1));
    tracker.close();
    tracker.wait().await;
}

/// A job may be past its last check of the token: a waiter that cancels then does not lose the result.
#[tokio::test]
async fn the_last_to_leave_gets_what_was_made_all_the_same() {
    let (flights, ..) = flights();
    let ticket = flights.join(&"a", |context| async move {
        context.token.cancelled().await;
        Ok(7)
    });
    assert_eq!(ticket.leave().await, Some(7));
    let ticket = flights.join(&"a", |context| async move {
        context.token.cancelled().await;
        Err(Error::new(Kind::Cancelled, "gone"))
    });
    assert_eq!(ticket.leave().await, None);
    let (first, mut second) = (flights.join(&"a", |_| async { Ok(1) }), flights.join(&"a", |_| async { Ok(1) }));
    assert_eq!(first.leave().await, None, "somebody else waits for it");
    assert_eq!(second.wait().await, Ok(1));
}

#[tokio::test]
async fn a_job_that_panics_is_an_error_and_leaves_the_table() {
    let (flights, ..) = flights();
    let mut ticket = flights.join(&"a", |_| async { panic!("on purpose") });
    assert_eq!(ticket.wait().await.expect_err("no answer").kind(), Kind::Internal);
    assert_eq!(flights.len(), 0);
}

#[tokio::test]
async fn shutdown_reaches_every_job() {
    let (flights, tracker, shutdown) = flights();
    let mut ticket = flights.join(&"a", |context| async move {
        context.token.cancelled().await;
        Err(Error::new(Kind::Cancelled, "shut down"))
    });
    shutdown.cancel();
    assert_eq!(ticket.wait().await.expect_err("cancelled").kind(), Kind::Cancelled);
    tracker.close();
    tracker.wait().await;
}
