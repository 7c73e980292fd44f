//! Joining, leaving, answering and failing.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use imagelet_base::single_flight::{Flight, Group, Shared, Ticket};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

type Cancelled = Group<&'static str, CancellationToken, u32>;

/// Joins; the first one runs `work` as a task. Returns true if it did.
fn join<F>(
    group: &Cancelled,
    work: impl FnOnce(CancellationToken) -> F,
) -> (Ticket<&'static str, CancellationToken, u32>, bool)
where
    F: Future<Output = u32> + Send + 'static,
{
    let (ticket, flight) = group.join(&"a", (), CancellationToken::new);
    let led = flight.is_some();
    if let Some(flight) = flight {
        let work = work(flight.shared().clone());
        run(async move { flight.land(work.await) });
    }
    (ticket, led)
}

#[expect(clippy::disallowed_methods, reason = "a task of a test ends with it")]
fn run(work: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(work);
}

#[tokio::test]
async fn concurrent_callers_share_one_flight() {
    let group = Cancelled::default();
    let runs = Arc::new(AtomicUsize::new(0));
    let (go, gate) = oneshot::channel::<()>();
    let count = Arc::clone(&runs);
    let (mut first, led) = join(&group, |_| async move {
        count.fetch_add(1, Ordering::Relaxed);
        gate.await.expect("told to go");
        7
    });
    let (mut second, joined) = join(&group, |_| async { unreachable!("joined") });
    assert!(led && !joined && group.contains(&"a") && group.keys(|_| true) == ["a"]);
    assert!(group.join_running(&"b", ()).is_none());
    let mut third = group.join_running(&"a", ()).expect("under way");
    assert_eq!((group.len(), group.waiters()), (1, 3));
    go.send(()).expect("waits");
    assert_eq!((first.wait().await, second.wait().await, third.wait().await), (Some(7), Some(7), Some(7)));
    assert_eq!(first.wait().await, Some(7), "asked again");
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    assert!(group.is_empty());
}

#[tokio::test]
async fn last_waiter_to_leave_cancels() {
    let group = Cancelled::default();
    let (told, heard) = oneshot::channel();
    let (first, _) = join(&group, |token| async move {
        token.cancelled().await;
        told.send(()).expect("heard");
        0
    });
    let token = first.shared().clone();
    let (second, _) = join(&group, |_| async { unreachable!("joined") });
    drop(first);
    assert!(!token.is_cancelled());
    drop(second);
    // The next one starts afresh, even while the old one ends.
    let (mut third, led) = join(&group, |_| async { 1 });
    assert!(led);
    heard.await.expect("cancelled");
    assert_eq!(third.wait().await, Some(1));
    assert!(group.is_empty());
}

#[tokio::test]
async fn last_waiter_to_leave_gets_an_existing_answer() {
    let group = Cancelled::default();
    let (ticket, _) = join(&group, |token| async move {
        token.cancelled().await;
        7
    });
    assert_eq!(ticket.leave().await, Some(7));
    let ((first, _), (mut second, _)) = (join(&group, |_| async { 1 }), join(&group, |_| async { 1 }));
    assert_eq!(first.leave().await, None, "another one waits for it");
    assert_eq!(second.wait().await, Some(1));
}

#[tokio::test]
async fn panicking_flight_has_no_answer_and_leaves_the_group() {
    let group = Cancelled::default();
    let (mut ticket, _) = join(&group, |_| async { panic!("on purpose") });
    assert_eq!(ticket.wait().await, None);
    assert!(group.is_empty());
}

/// A flight that lingers, and whose waiters pass numbers.
struct Lingers;

impl Shared for Lingers {}

type Lingering = Group<&'static str, Lingers, u32, u32>;

type Begun = (Ticket<&'static str, Lingers, u32, u32>, Flight<&'static str, Lingers, u32, u32>);

fn begin(group: &Lingering, number: u32) -> Begun {
    let (ticket, flight) = group.join(&"a", number, || Lingers);
    (ticket, flight.expect("the first one"))
}

#[tokio::test]
async fn waiters_are_answered_individually() {
    let group = Lingering::default();
    let (mut first, flight) = begin(&group, 1);
    let (mut second, none) = group.join(&"a", 2, || Lingers);
    assert!(none.is_none());
    let even = |number: &mut u32| number.is_multiple_of(2).then_some(*number);
    let (id, number) = flight.find_waiter(even).expect("the second one");
    flight.answer_one(id, number * 10);
    assert_eq!((second.wait().await, group.waiters()), (Some(20), 1));
    assert!(flight.find_waiter(even).is_none() && !flight.retire());
    // Answering a waiter that has left is no error.
    let (id, _) = flight.find_waiter(|number| Some(*number)).expect("the first one");
    let (mut third, _) = group.join(&"a", 3, || Lingers);
    flight.answer_one(id, 5);
    assert_eq!(first.wait().await, Some(5));
    flight.land(7);
    assert_eq!(third.wait().await, Some(7));
}

#[tokio::test(start_paused = true)]
async fn flight_lingers_after_its_last_waiter() {
    let group = Lingering::default();
    let minute = Duration::from_secs(60);
    let (first, flight) = begin(&group, 1);
    let start = Instant::now();
    let visits = async {
        drop(first);
        sleep(minute / 2).await;
        let (visitor, led) = group.join(&"a", 2, || Lingers);
        assert!(led.is_none(), "it lingers");
        sleep(minute * 2).await;
        drop(visitor);
    };
    tokio::join!(flight.abandoned(|_| minute), visits);
    assert_eq!(start.elapsed(), minute / 2 + minute * 2 + minute);
    // No caller joins an abandoned flight, and its end removes no other flight from the group.
    let (_next, other) = begin(&group, 3);
    drop(flight);
    assert!(group.contains(&"a"));
    drop(other);
    assert!(group.is_empty());
}

#[tokio::test(start_paused = true)]
async fn flight_without_linger_ends_immediately() {
    let group = Lingering::default();
    let (ticket, flight) = begin(&group, 1);
    drop(ticket);
    let start = Instant::now();
    flight.abandoned(|_| Duration::ZERO).await;
    assert!(start.elapsed() < Duration::from_millis(10) && group.is_empty() && flight.retire());
}
