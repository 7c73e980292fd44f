//! Tests of the requests of one follower, on services in memory.

use futures::StreamExt as _;
use serde_json::{Value, json};

use super::*;

fn watch(query: &str) -> Option<Watch> {
    let uri: Uri = format!("/api/v1/pods?{query}").parse().expect("a URI");
    Watch::of(&uri, 321).expect("a URI")
}

#[test]
fn watches_are_asked_for_with_their_own_length() {
    let resumed =
        watch("&watch=true&timeoutSeconds=600&fieldSelector=a%3Db&allowWatchBookmarks=true&resourceVersion=0");
    let resumed = resumed.expect("a watch");
    let want =
        "/api/v1/pods?timeoutSeconds=321&watch=true&fieldSelector=a%3Db&allowWatchBookmarks=true&resourceVersion=0";
    assert_eq!((resumed.uri.to_string().as_str(), resumed.is_list), (want, false));
    assert_eq!(resumed.duration, Duration::from_secs(321));
    let list = watch(
        "watch=true&timeoutSeconds=600&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0",
    );
    let list = list.expect("a watch");
    let want = "/api/v1/pods?timeoutSeconds=321&watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    assert_eq!((list.uri.to_string().as_str(), list.is_list), (want, true));
    assert!(watch("fieldSelector=a%3Db&limit=500").is_none() && watch("").is_none());
}

#[test]
fn deletion_before_the_end_of_a_list_is_noticed_however_it_is_cut() {
    let event = |kind: &str, metadata: Value| {
        format!("{}\n", json!({"type": kind, "object": {"kind": "Pod", "apiVersion": "v1", "metadata": metadata}}))
    };
    let added = event("ADDED", json!({"name": "DELETED"}));
    let deleted = event("DELETED", json!({"name": "a"}));
    let bookmark = event("BOOKMARK", json!({"resourceVersion": "5"}));
    let end = event("BOOKMARK", json!({"resourceVersion": "7", "annotations": {END_OF_LIST: "true"}}));
    let cases = [
        ([&*added, &end, &deleted].concat(), ListState::Ended),
        ([&*added, &deleted, &end].concat(), ListState::Deleted),
        ([&*added, &bookmark, "garbage\n", &deleted].concat(), ListState::Deleted),
        ([&*added, &bookmark].concat(), ListState::Open),
        (deleted.trim_end().to_owned(), ListState::Open),
    ];
    for (text, want) in cases {
        for length in [1, 2, 7, 64, 10_000] {
            let mut list = StreamingList::until(Instant::now());
            let mut states = text.as_bytes().chunks(length).map(|part| list.read(part));
            let state = states.find(|state| *state != ListState::Open).unwrap_or(ListState::Open);
            assert_eq!(state, want, "{length}: {text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn body_of_a_watch_ends_after_its_time() {
    let pace = Arc::new(Pace::new(Arc::new(|| 0.5)));
    let endless = tower::service_fn(|_: Request<Body>| async {
        let events = futures::stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            Some((Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"{}\n"))), ()))
        });
        Ok::<_, BoxError>(Response::new(StreamBody::new(events)))
    });
    let endless = ClusterClient::fixed(kube::Client::new(endless, "default"));
    let begun = Instant::now();
    let request = Request::get("/api/v1/pods?watch=true&timeoutSeconds=600").body(Body::empty()).expect("a request");
    let answer = send(endless, pace, request).await.expect("an answer");
    let frames = answer.into_body().into_data_stream().count().await;
    assert_eq!((begun.elapsed().as_secs(), frames), ((WATCH + OVERTIME).as_secs(), 7));
}
