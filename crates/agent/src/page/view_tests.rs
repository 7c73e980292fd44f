//! The whole page: escaping, empty states, size.

use super::samples::{HOSTILE, empty, lively, with_sets};
use super::*;
use crate::page::report::FollowedSets;

fn html(report: &Report) -> String {
    page(report, &ImageQuery::default()).into_string()
}

/// The tags of a page, with their attributes as they are written.
fn tags(html: &str) -> Vec<&str> {
    html.split('<').skip(1).filter_map(|rest| rest.split_once('>')).map(|(tag, _)| tag).collect()
}

#[test]
fn texts_of_others_are_escaped_everywhere() {
    let report = with_sets(lively(40, HOSTILE), 3, HOSTILE);
    let query = ImageQuery { filter: HOSTILE.to_owned(), ..ImageQuery::default() };
    for html in [html(&report), page(&report, &query).into_string()] {
        assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "the text is shown");
        let tags = tags(&html);
        let scripts = tags.iter().filter(|tag| tag.starts_with("script")).count();
        assert_eq!(scripts, 1, "no script but that of the page");
        assert!(!tags.iter().any(|tag| tag.starts_with("img")), "no foreign image");
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
        "No pull is running.",
        "No pull has finished since the start.",
        "No two images share a layer.",
        "There are no pods.",
        "No events of the node, or of pods that have ended, since the start.",
        "The image file system cannot be measured.",
    ] {
        assert!(html.contains(line), "{line}");
    }
    let report = Report { pods: None, backoff: None, ..empty() };
    let html = self::html(&report);
    assert!(html.contains("This process runs no pods."));
    assert!(html.contains("<section id=\"attention\" hidden>"), "nothing needs attention");
    assert!(html.contains("<section id=\"events\" hidden>"), "a part that is not there keeps its id");
    assert!(html.contains("<section id=\"sets\" hidden>"), "the process follows no sets");
}

#[test]
fn parts_are_elements_with_their_ids() {
    for report in [empty(), lively(3, ""), with_sets(empty(), 3, "")] {
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

#[test]
fn the_parts_are_in_the_order_of_their_urgency() {
    let html = html(&lively(5, ""));
    let position = |id: &str| html.find(&format!(" id=\"{id}\"")).unwrap_or_else(|| panic!("no {id}"));
    let ids = ["health", "attention", "pulls", "pods", "sets", "disk", "images", "layers", "speed", "ended", "events"];
    assert!(ids.windows(2).all(|pair| position(pair[0]) < position(pair[1])));
    let title =
        "<title>2 of 4 pods not ready · 1 manifest refused · 1 pull retrying · disk OK – edge-1 – imagelet</title>";
    assert!(html.contains(title));
}

/// Removes everything that is folded.
fn unfolded(html: &str) -> String {
    let mut shown = String::new();
    let mut depth = 0;
    for piece in html.split_inclusive("details>") {
        let is_end = piece.ends_with("</details>");
        let text = piece.trim_end_matches("details>").trim_end_matches(['<', '/']);
        if depth == 0 {
            shown.push_str(text);
        } else if let Some((summary, _)) = text.split_once("</summary>").filter(|_| depth == 1) {
            shown.push_str(summary);
        }
        depth = if is_end { depth - 1 } else { depth + 1 };
    }
    shown
}

#[test]
fn a_failure_is_shown_once() {
    let shown = unfolded(&html(&lively(5, "")));
    let images = shown.split("id=\"images\"").next().expect("the part before the images");
    assert_eq!(images.matches("<span class=\"path\">ghcr.io/example/</span>worker:7").count(), 1, "one entry");
    assert_eq!(images.matches("not found, 3 failed pulls").count(), 1);
    assert_eq!(shown.matches("ghcr.io/example/worker:7: not found").count(), 0, "the message is folded");
    assert_eq!(shown.matches("spec.containers: Required value").count(), 1);
}

#[test]
fn a_picture_has_axes_from_ten_points_on() {
    let mut report = lively(3, "");
    assert_eq!(html(&report).matches("class=\"axis\"").count(), 2);
    report.ended.truncate(9);
    report.throughput.iter_mut().skip(9).for_each(|interval| *interval = Default::default());
    let html = html(&report);
    assert_eq!(html.matches("class=\"axis\"").count(), 0);
    assert_eq!(html.matches("class=\"chart spark\"").count(), 2);
}

#[test]
fn sets_are_shown_with_failures_first_and_images_folded() {
    let all = html(&with_sets(empty(), 250, ""));
    let section = all.split("id=\"sets\"").nth(1).and_then(|rest| rest.split("</section>").next()).expect("a section");
    let position = |text: &str| section.find(text).unwrap_or_else(|| panic!("no {text} in {section}"));
    assert!(position("data-key=\"web\"") < position("data-key=\"base\""), "the set with a failure is first");
    for text in
        ["0 of 2 images ready, 1 pulling, 1 failed", "20MB of 80MB", "250 of 250 images ready", "and 150 images more"]
    {
        position(text);
    }
    let bar = "<rect class=\"pulling\" x=\"0.00%\" width=\"50.00%\" height=\"10\"></rect>\
               <rect class=\"failed\" x=\"50.00%\" width=\"50.00%\" height=\"10\"></rect>";
    position(bar);
    let shown = unfolded(section);
    assert_eq!(shown.matches("shop/</span>front:9").count(), 1, "{shown}");
    assert!(shown.contains("InsufficientSpace") && shown.contains("next attempt in 1m30s"), "{shown}");
    for folded in ["3 GB would have to be free", "back:9", "base/</span>0:1"] {
        assert!(section.contains(folded) && !shown.contains(folded), "{folded}");
    }
    assert!(shown.contains("Last reported to the API server"), "{shown}");
}

#[test]
fn sets_that_are_not_known_are_not_said_to_be_absent() {
    let of = |image_sets| html(&Report { image_sets, ..empty() });
    assert!(of(FollowedSets::Unknown).contains("The image sets of this node are not known yet."));
    assert!(of(FollowedSets::Known(Default::default())).contains("No image set selects this node."));
}
