//! Lists of tags: pages, links, odd answers.

use registry::ErrorKind;
use registry::testing::{Fault, TestRegistry};

use crate::support::repository;

fn page(body: &str, link: &str) -> Fault {
    let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    headers.extend((!link.is_empty()).then(|| ("link".to_owned(), link.to_owned())));
    Fault::Status { code: 200, headers, body: body.to_owned() }
}

#[tokio::test]
async fn all_pages_are_fetched_from_the_registry_itself() {
    let registry = TestRegistry::open().await;
    let elsewhere = "<https://elsewhere.example/other?last=b&n=2>; rel=\"next\"";
    registry.faults().once("/v2/team/app/tags/list?n=1000", page(r#"{"tags": ["b", "a"]}"#, elsewhere));
    let last = page(r#"{"name": "team/app", "tags": ["1.0", "b", "not a tag"]}"#, "");
    registry.faults().once("/v2/team/app/tags/list?last=b&n=2", last);
    let tags = repository(&registry, "team/app:1").tags().await.expect("listed");
    assert_eq!(tags, ["1.0", "a", "b"]);
    assert_eq!(registry.requests().len(), 2);
}

#[tokio::test]
async fn a_list_that_does_not_end_is_an_error() {
    let registry = TestRegistry::open().await;
    let itself = "</v2/app/tags/list?last=a>; rel=\"next\"";
    registry.faults().always("/tags/list", page(r#"{"tags": ["a"]}"#, itself));
    let error = repository(&registry, "app").tags().await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidContent);
    assert!(error.to_string().contains("links to itself"), "{error}");
}

#[tokio::test]
async fn odd_lists() {
    let registry = TestRegistry::open().await;
    let error = repository(&registry, "absent").tags().await.expect_err("absent");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    registry.faults().once("/tags/list", Fault::Html);
    let error = repository(&registry, "app").tags().await.expect_err("a page for people");
    assert!(error.to_string().contains("no list of tags"), "{error}");
    registry.faults().once("/tags/list", Fault::status(503));
    registry.faults().once("/tags/list", page(r#"{"tags": null}"#, ""));
    assert!(repository(&registry, "app").tags().await.expect("listed").is_empty());
}
