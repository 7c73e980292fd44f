//! Compares the metrics of this crate with their tables in docs/admin.md. For tests.

use std::collections::BTreeMap;

use prometheus_client::registry::Registry;

/// Returns the text of the metrics that `register` adds.
pub(crate) fn text(register: impl FnOnce(&mut Registry)) -> String {
    let mut registry = Registry::default();
    register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("written");
    text
}

/// Returns the samples of a text, without comments.
pub(crate) fn samples(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

/// Returns names and types of the metrics in a text. The name of a counter has its suffix.
pub(crate) fn exported(text: &str) -> BTreeMap<String, String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let suffix = |kind: &str| if kind == "counter" { "_total" } else { "" };
    types.map(|(name, kind)| (format!("{name}{}", suffix(kind)), kind.to_owned())).collect()
}

/// Returns names and types of the metrics in a table of docs/admin.md, below a heading.
pub(crate) fn documented(heading: &str) -> BTreeMap<String, String> {
    let page = include_str!("../../../docs/admin.md");
    let (_, part) = page.split_once(&format!("{heading}\n")).expect("a heading");
    let part = part.split("\n#").next().unwrap_or_default();
    let rows = part.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    rows.map(|(name, rest)| (name.to_owned(), rest.split(' ').next().unwrap_or_default().to_owned())).collect()
}
