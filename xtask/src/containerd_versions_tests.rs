//! Tests of `containerd_versions`.

use super::*;

const OLD: &str = "suite bookworm\nversion 1.6.20\nsnapshotter overlayfs\npassed imagelet::product pods::life::a\n\
    passed imagelet-containerd::real b\npassed imagelet::product remote::c\n";
const NEW: &str = "suite sid\nversion 1.10.2\nsnapshotter erofs\nfailed imagelet::product pods::life::a\n\
    passed imagelet::product pods::life::d\n";

#[test]
fn the_page_has_a_column_for_each_containerd() {
    let page = page(&[Tested::parse(OLD).expect("results"), Tested::parse(NEW).expect("results")]);
    let table: Vec<&str> = page.lines().filter(|line| line.starts_with('|') || line.starts_with('-')).collect();
    assert_eq!(
        table,
        [
            "| containerd | 1.6.20 | 1.10.2 |",
            "| --- | --- | --- |",
            "| Debian suite | bookworm | sid |",
            "| snapshotter | overlayfs | erofs |",
            "| containerd's API, and images made by hand through it | 1 passed | – |",
            "| CRI ImageService, containerd alone and behind `serve` | – | – |",
            "| CRI RuntimeService, containerd alone and behind `serve` | – | – |",
            "| snapshots of our engine compared with containerd's own | – | – |",
            "| trees of imagelet's own store compared with containerd's | – | – |",
            "| `imagelet run`: pods, thirty at once among them | 1 passed | 1 of 2 |",
            "| garbage collection | – | – |",
            "| pulls, lists, tenants, crowds, streams | 1 passed | – |",
            "| all | 3 passed | 1 of 2 |",
            "- 1.10.2 with erofs: `pods::life::a`",
        ]
    );
}

#[test]
fn versions_are_in_the_order_of_their_numbers() {
    let (old, new) = (Tested::parse(OLD).expect("results"), Tested::parse(NEW).expect("results"));
    assert!(old.order() < new.order());
}

#[test]
fn what_is_no_result_is_refused() {
    for text in ["suite sid\npassed a b\n", "version 1.6\nmaybe a b\n", "version\n"] {
        assert!(Tested::parse(text).is_err(), "{text:?}");
    }
}
