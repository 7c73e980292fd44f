//! The whole page: escaping, empty states, size.

use super::samples::{HOSTILE, empty, lively};
use super::*;

fn html(report: &Report) -> String {
    page(report, &ImageQuery::default()).into_string()
}

/// The tags of a page, with their attributes as they are written.
fn tags(html: &str) -> Vec<&str> {
    html.split('<').skip(1).filter_map(|rest| rest.split_once('>')).map(|(tag, _)| tag).collect()
}

#[test]
fn texts_of_others_are_escaped_everywhere() {
    let report = lively(40, HOSTILE);
    let query = ImageQuery { filter: HOSTILE.to_owned(), ..ImageQuery::default() };
    for html in [html(&report), page(&report, &query).into_string()] {
        assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "the text is there");
        let tags = tags(&html);
        let scripts = tags.iter().filter(|tag| tag.starts_with("script")).count();
        assert_eq!(scripts, 1, "no script but that of the page");
        assert!(!tags.iter().any(|tag| tag.starts_with("img")), "no image of somebody else");
        for tag in &tags {
            // Attributes are written with double quotes, so that text outside of them would have to be an attribute.
            let outside: String = tag.split('"').step_by(2).collect();
            assert!(!outside.contains("onerror") && !outside.contains("style="), "{tag}");
        }
    }
}

#[test]
fn nothing_is_inline_and_nothing_is_fetched_from_elsewhere() {
    let html = html(&lively(40, ""));
    for tag in tags(&html) {
        for word in ["style=", " onclick=", "javascript:", "href=\"http", "src=\"http", "href=\"//", "src=\"//"] {
            assert!(!tag.contains(word), "{tag}");
        }
    }
}

#[test]
fn environments_of_containers_are_not_shown() {
    let html = html(&lively(5, ""));
    assert!(html.contains("web-1"), "pods are");
    assert!(!html.contains("s3cret-of-a-container") && !html.contains("PASSWORD"));
}

#[test]
fn an_empty_node_says_what_there_is_not() {
    let html = html(&empty());
    for line in [
        "There are no images.",
        "No pull runs.",
        "No pull has ended since the start.",
        "No two images share a layer.",
        "There are no pods.",
        "No pull waits after a failure.",
        "Nothing has happened since the start.",
        "The image file system cannot be measured.",
    ] {
        assert!(html.contains(line), "{line}");
    }
    let report = Report { pods: None, backoff: None, ..empty() };
    let html = self::html(&report);
    assert!(html.contains("This process runs no pods.") && html.contains("No back-off is kept here"));
    assert!(html.contains("<section id=\"events\" hidden>"), "a part that is not there keeps its id");
}

#[test]
fn parts_are_elements_with_their_ids() {
    for report in [empty(), lively(3, "")] {
        for (id, part) in parts(&report, &ImageQuery::default()) {
            let html = part.into_string();
            let tag = html.split('>').next().unwrap_or_default();
            assert!(tag.contains(&format!(" id=\"{id}\"")), "{id}: {tag}");
        }
    }
}

#[test]
fn a_page_of_a_thousand_images_is_bounded() {
    let (hundred, thousand) = (html(&lively(100, "")), html(&lively(1000, "")));
    let rows = |html: &str| html.matches("<tr data-key=\"sha256:").count();
    // In addition, six images to remove next.
    assert_eq!((rows(&hundred), rows(&thousand)), (106, 106));
    assert!(thousand.len() < 400_000, "{} bytes", thousand.len());
    assert!(thousand.contains("Page 1 of 10") && thousand.contains("1\u{202f}000 images"));
}
