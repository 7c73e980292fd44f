//! Tests of answers that do not arrive.

use std::convert::Infallible;

use http_body_util::{BodyExt, Full, StreamBody};
use tower::{ServiceExt, service_fn};

use super::*;

// upstream: nodestatus/TestUpdateExistingNodeStatusTimeout
#[tokio::test(start_paused = true)]
async fn a_silent_server_ends_a_request() {
    let never = service_fn(|_: Request<()>| async {
        futures::future::pending::<()>().await;
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::new())))
    });
    let asked = Request::get("/api/v1/nodes/n").body(()).expect("a request");
    let error = Patience::new(never).oneshot(asked).await.err().expect("an end");
    assert!(error.is::<Silent>(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_body_ends_unless_it_is_a_watch() {
    for (path, ends) in [("/api/v1/pods?limit=5", true), ("/api/v1/pods?watch=true&a=b", false)] {
        // One part at once, the next one after an hour.
        let parts = service_fn(|_: Request<()>| async {
            let later = futures::stream::unfold(0, |at| async move {
                if at == 1 {
                    tokio::time::sleep(Duration::from_secs(3600)).await;
                }
                (at < 2).then(|| (Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"x"))), at + 1))
            });
            Ok::<_, Infallible>(Response::new(StreamBody::new(later)))
        });
        let asked = Request::get(path).body(()).expect("a request");
        let answer = Patience::new(parts).oneshot(asked).await.expect("a head");
        let whole = answer.into_body().collect().await;
        match whole {
            Ok(whole) => assert!(!ends && &*whole.to_bytes() == b"xx", "{path}"),
            Err(error) => assert!(ends && error.is::<Silent>(), "{path}: {error}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_says_when_to_ask_again() {
    let cases = [
        (429, Some("7"), 7),
        (503, Some("2"), 2),
        (429, Some("86400"), 30),
        (429, Some("Wed, 21 Oct 2026 07:28:00 GMT"), 0),
        (429, None, 0),
        (500, Some("7"), 0),
        (200, Some("7"), 0),
    ];
    for (status, header, want) in cases {
        let refuses = service_fn(move |_: Request<()>| async move {
            let answer = Response::builder().status(status);
            let answer = header.map_or(Response::builder().status(status), |after| answer.header("Retry-After", after));
            Ok::<_, Infallible>(answer.body(Full::new(Bytes::new())).expect("an answer"))
        });
        let begun = Instant::now();
        let asked = Request::get("/api/v1/nodes/n").body(()).expect("a request");
        let answer = Patience::new(refuses).oneshot(asked).await.expect("a head");
        assert_eq!((answer.status().as_u16(), begun.elapsed().as_secs()), (status, want), "{header:?}");
    }
}

#[test]
fn watches_are_known_by_their_query() {
    for (query, want) in [("watch=true", true), ("a=b&watch=1", true), ("watch=false", false), ("", false)] {
        assert_eq!(is_watch(query), want, "{query}");
    }
}
