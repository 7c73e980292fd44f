//! Streams of events by a clock that stands still, as hyper would read them.

use std::sync::Arc;

use cri_api::testing::{CallKind, FakeImage, FakeImageService};
use cri_api::{ImageService as _, PullImageRequest};
use image_manager::{WantedBy, WatchedPulls};

use super::super::stream_quota::StreamQuota;
use super::*;

fn board() -> PullBoard {
    PullBoard::new(Arc::new(Instant::now), Arc::new(|| jiff::Timestamp::UNIX_EPOCH))
}

fn reader(board: &PullBoard, since: u64, stop: &CancellationToken) -> Reader {
    let place = StreamQuota::default().place(Some(0), true).expect("there is one");
    Reader::new(board.clone(), since, INTERVAL, stop.clone(), place)
}

/// The name, the id and the data of an event.
fn read(bytes: Option<Bytes>) -> (String, Option<u64>, serde_json::Value) {
    let bytes = bytes.expect("the stream goes on");
    let text = std::str::from_utf8(&bytes).expect("text");
    assert!(text.ends_with("\n\n"), "{text}");
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let data = field("data: ").map_or(serde_json::Value::Null, |data| serde_json::from_str(data).expect("JSON"));
    let name = field("event: ").unwrap_or("keep-alive").to_owned();
    (name, field("id: ").map(|id| id.parse().expect("a number")), data)
}

fn pulls(bytes: Option<Bytes>) -> (Option<u64>, Pulls) {
    let (name, id, data) = read(bytes);
    assert_eq!(name, "pulls");
    (id, serde_json::from_value(data).expect("pulls"))
}

#[tokio::test(start_paused = true)]
async fn a_reader_hears_of_each_change_and_of_nothing_every_fifteen_seconds() {
    let (board, stop, fake) = (board(), CancellationToken::new(), FakeImageService::new());
    fake.publish("app:1", &FakeImage::new("app"));
    let service = WatchedPulls::new(Arc::new(fake.clone()), board.clone(), WantedBy::Client);
    let mut reader = reader(&board, 0, &stop);
    let (id, state) = pulls(reader.next().await);
    assert_eq!((id, state), (Some(0), Pulls::default()), "the first event comes at once");
    let begin = Instant::now();
    assert_eq!(read(reader.next().await).0, "keep-alive");
    assert_eq!(begin.elapsed(), KEEP_ALIVE);

    let gate = fake.faults().hold(CallKind::PullImage);
    let pull = service.pull_image(PullImageRequest::new("app:1"));
    let hear = async {
        gate.until_waiting(1).await;
        let (_, state) = pulls(reader.next().await);
        let (_, again) = pulls(reader.next().await);
        gate.open();
        (state, again)
    };
    let (pulled, (state, again)) = tokio::join!(pull, hear);
    pulled.expect("it is published");
    assert_eq!((state.pulls[0].image.as_str(), state.ended.len()), ("app:1", 0));
    assert!(again.pulls[0].elapsed_milliseconds >= state.pulls[0].elapsed_milliseconds + 500, "while it runs");
    let (id, state) = pulls(reader.next().await);
    assert_eq!((id, state.pulls.len(), state.ended.len()), (Some(1), 0, 1));

    stop.cancel();
    assert_eq!(read(reader.next().await), ("end".to_owned(), None, serde_json::json!({"reason": "the agent ends"})));
    assert!(reader.next().await.is_none(), "and the stream is over");
}

#[tokio::test(start_paused = true)]
async fn reconnected_reader_gets_missed_events_and_the_number_of_lost_ones() {
    let (board, stop, fake) = (board(), CancellationToken::new(), FakeImageService::new());
    let service = WatchedPulls::new(Arc::new(fake), board.clone(), WantedBy::Client);
    for _ in 0..image_manager::ENDED_PULLS + 10 {
        service.pull_image(PullImageRequest::new("absent:1")).await.expect_err("it is not published");
    }
    let (id, state) = pulls(reader(&board, 108, &stop).next().await);
    assert_eq!((id, state.ended.len(), state.missed), (Some(110), 2, 0));
    let (_, state) = pulls(reader(&board, 4, &stop).next().await);
    assert_eq!((state.ended.len(), state.missed), (100, 6), "the board remembers a hundred");
}
