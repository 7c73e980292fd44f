//! The Markdown of figures, and their place in a document.

use super::*;
use crate::floor_tree::TreeTotals;
use crate::output::replaced;

fn row(engine: &str, wall: f64, ratio: Option<f64>) -> EngineFigures {
    EngineFigures {
        engine: engine.into(),
        image: "base".into(),
        wall_s: wall,
        cpu_s: wall * 2.0,
        peak_mib: 33.4,
        sync_s: 0.25,
        ratio,
        registry_s: 0.125,
        range: (wall - 0.1, wall + 0.1),
        rounds: 5,
    }
}

#[test]
fn each_image_has_a_table_with_its_floor() {
    let rows =
        [row("imagelet", 0.5, Some(1.0)), row("imagelet-durable", 0.75, Some(1.5)), row("podman", 2.0, Some(4.0))];
    let totals = TreeTotals { entries: 9710, bytes: 218_000_000 };
    let floor = Floor { blob_hash: 0.05, inflate: 0.25, diff_hash: 0.1, files: 0.4, disk: 0.5, totals };
    let text = engines(&rows, &[("base".to_owned(), floor)], 2);
    assert!(text.starts_with("### base\n\n| engine | wall (s) |"), "{text}");
    assert!(text.contains("\n| imagelet | 0.500 | 0.400–0.600 | 1.00 | 0.250 | – | 1.00 | – | 33 |\n"), "{text}");
    assert!(
        text.contains("\n| imagelet-durable | 0.750 | 0.650–0.850 | 1.50 | 0.250 | – | 1.50 | 0.67 | 33 |\n"),
        "{text}"
    );
    assert!(text.contains("\n| podman | 2.00 | 1.90–2.10 | 4.00 | 0.250 | 3.00 | 4.00 | 0.25 | 33 |\n"), "{text}");
    assert!(text.contains("9710 entries, 218 MB of files"), "{text}");
    assert!(text.contains("takes 1.25 times the floor, with 1.25 times its CPU; the registry used 0.125 s"), "{text}");
    assert!(text.contains("The durable one takes 1.50 times"), "{text}");
}

#[test]
fn an_engine_alone_has_no_ratio() {
    let text = engines(&[row("podman", 12.0, None)], &[], 2);
    assert!(text.contains("| podman | 12.0 | 11.9–12.1 | – | 0.250 | – | 24.0 | – | 33 |"), "{text}");
    assert!(!text.contains("Floor"), "{text}");
}

#[test]
fn a_part_of_a_document_is_replaced() {
    let document = "# F\n<!-- bench-pull warm: begin -->\nold\n<!-- bench-pull warm: end -->\nrest\n";
    let new = replaced(document, "warm", "new\n\n").expect("the marks are there");
    assert_eq!(new, document.replace("old", "new"));
    assert_eq!(replaced(&new, "warm", "new").as_deref(), Some(new.as_str()));
    assert_eq!(replaced(document, "table", "new"), None);
}

#[test]
fn seconds_have_three_digits() {
    let shown: Vec<String> = [0.0, 0.1234, 0.9996, 1.0, 9.99, 9.996, 12.34].into_iter().map(seconds).collect();
    assert_eq!(shown, ["0.000", "0.123", "1.00", "1.00", "9.99", "10.0", "12.3"]);
}
