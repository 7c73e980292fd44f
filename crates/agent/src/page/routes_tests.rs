//! Paths of the page: a spelling has one route, or none.

use super::*;

#[test]
fn a_path_is_parsed_once() {
    let asset = PageRoute::Asset { version: "0a".to_owned(), name: "page.js".to_owned() };
    for (path, want) in [
        ("/", Some(PageRoute::Page)),
        ("/live", Some(PageRoute::Live)),
        ("/assets/0a/page.js", Some(asset)),
        ("/assets", Some(PageRoute::Unknown)),
        ("/Live", Some(PageRoute::Unknown)),
        ("/live;x", Some(PageRoute::Unknown)),
        ("/live/x", Some(PageRoute::Unknown)),
        ("", None),
        ("*", None),
        ("//", None),
        ("//live", None),
        ("/live/", None),
        ("/./live", None),
        ("/x/../live", None),
        ("/%6cive", None),
        ("/live%2f", None),
        ("/assets//page.js", None),
        ("/assets/../page.js", None),
        ("/assets/0a/%70age.js", None),
    ] {
        assert_eq!(PageRoute::parse(path), want, "{path:?}");
    }
}
