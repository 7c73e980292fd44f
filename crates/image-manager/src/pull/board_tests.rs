//! Pulls on the board, by the events of their service.

use cri_api::{LayerState, PullEvent};
use oci::Digest;
use tokio::time::Instant;

use super::super::in_flight::{LayerInFlight, PullOutcome};
use super::*;

/// A board on tokio's clock, which advances only on request.
fn board() -> PullBoard {
    PullBoard::new(Arc::new(Instant::now), Arc::new(|| Timestamp::UNIX_EPOCH))
}

fn pod(name: &str) -> WantedBy {
    WantedBy::Pod { namespace: "shop".to_owned(), name: name.to_owned() }
}

#[tokio::test(start_paused = true)]
async fn a_pull_is_shown_with_its_layers_and_rate_and_remembered_when_it_ends() {
    let board = board();
    let mut changes = board.changes();
    let hub = base::single_flight::Hub::<Progress>::default();
    let mut on_board = board.enter("app:1", hub.clone(), None);
    assert!(changes.has_changed().expect("it is open"));
    changes.mark_unchanged();
    let waiters = [on_board.pull().join(pod("a")), on_board.pull().join(pod("b")), on_board.pull().join(pod("a"))];
    let see = |event: PullEvent| hub.with(|progress| progress.see(&event, board.time().now()));

    let shown = board.pulls().remove(0);
    assert_eq!((shown.step, &shown.layers, shown.total_bytes), (PullStep::Pulling, &None, None), "nothing was told");
    assert_eq!((shown.waiters, shown.wanted_by), (3, vec![pod("a"), pod("b")]));
    see(PullEvent::Resolving);
    assert_eq!(board.pulls()[0].step, PullStep::Resolving);

    let [base, own] = [Digest::sha256(b"base"), Digest::sha256(b"own")];
    let layers = vec![(base.clone(), 500), (own.clone(), 2000), (own.clone(), 2000)];
    see(PullEvent::Resolved { digest: Digest::sha256(b"manifest"), layers });
    see(PullEvent::Layer { digest: base.clone(), state: LayerState::Present });
    see(PullEvent::Layer { digest: own.clone(), state: LayerState::Fetching });
    tokio::time::advance(Duration::from_secs(2)).await;
    see(PullEvent::Bytes { digest: own.clone(), done: 1000 });
    see(PullEvent::Unpacked { digest: own.clone(), done: 4096 });
    let shown = board.pulls().remove(0);
    let layer = |digest: &Digest, size, (received, unpacked), state| LayerInFlight {
        digest: digest.to_string(),
        size_bytes: size,
        received_bytes: received,
        unpacked_bytes: unpacked,
        state,
    };
    let want =
        vec![layer(&base, 500, (0, 0), LayerState::Present), layer(&own, 2000, (1000, 4096), LayerState::Fetching)];
    assert_eq!(shown.layers, Some(want));
    assert_eq!((shown.total_bytes, shown.received_bytes, shown.unpacked_bytes), (Some(2000), 1000, 4096));
    assert_eq!((shown.step, shown.bytes_per_second), (PullStep::Fetching, Some(500)));
    assert_eq!(shown.elapsed_milliseconds, 2000);
    tokio::time::advance(Duration::from_secs(30)).await;
    assert_eq!(board.pulls()[0].bytes_per_second, Some(0), "nothing came for long");
    see(PullEvent::Committing);
    assert_eq!((board.pulls()[0].step, board.pulls()[0].bytes_per_second), (PullStep::Committing, None));

    drop(waiters);
    assert_eq!((board.pulls()[0].waiters, board.pulls()[0].wanted_by.len()), (0, 0));
    on_board.pulled("sha256:1");
    assert!(!changes.has_changed().expect("it is open"), "progress wakes nobody");
    drop(on_board);
    assert!(changes.has_changed().expect("it is open"));
    assert_eq!(board.pulls(), []);
    let ended = board.ended().remove(0);
    assert_eq!((ended.outcome, ended.image_ref.as_deref()), (PullOutcome::Pulled, Some("sha256:1")));
    assert_eq!((ended.received_bytes, ended.duration_milliseconds, ended.number), (1000, 32_000, 1));
    assert_eq!(ended.wanted_by, [pod("a"), pod("b")], "those that left are remembered");
}

#[tokio::test(start_paused = true)]
async fn the_board_remembers_the_last_ends_and_no_more() {
    let board = board();
    for index in 0..ENDED_PULLS + 5 {
        let mut pull = board.enter(&format!("app:{index}"), base::single_flight::Hub::default(), None);
        if index % 2 == 0 {
            pull.failed(Cause::NotFound, &format!("{}\nsecond line", "é".repeat(LONGEST_MESSAGE)));
        }
    }
    let ended = board.ended();
    let numbers: Vec<u64> = ended.iter().map(|ended| ended.number).collect();
    assert_eq!(numbers, (6..=105).collect::<Vec<u64>>());
    assert_eq!(board.ended_after(103).iter().map(|ended| ended.number).collect::<Vec<_>>(), [104, 105]);
    assert_eq!(ended[0].outcome, PullOutcome::Cancelled, "it was dropped");
    assert_eq!((ended[1].outcome, ended[1].cause.as_deref()), (PullOutcome::Failed, Some("not_found")));
    assert_eq!(ended[1].message.as_deref(), Some("é".repeat(LONGEST_MESSAGE / 2).as_str()), "one line, not too long");
}
