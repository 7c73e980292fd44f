//! Checks that a published crate has a README, an example at the head of its documentation, and the fields of its manifest that crates.io
//! shows.
//!
//! Pure; `tidy.rs` reads the files.

use crate::tidy_rules::Finding;

/// The line of a manifest that publishes the crate.
const PUBLISHED: &str = "publish.workspace = true";
/// Fields that crates.io shows.
const FIELDS: &[&str] = &["description", "readme", "keywords", "categories"];
/// Lines of a README: it is an introduction, and the documentation has the rest.
const LINES: std::ops::RangeInclusive<usize> = 10..=25;

/// Returns true for the manifest of a crate of the product.
pub(crate) fn is_manifest(name: &str) -> bool {
    name.strip_prefix("crates/")
        .and_then(|name| name.strip_suffix("/Cargo.toml"))
        .is_some_and(|name| !name.contains('/'))
}

/// The faults of one crate. `read` returns the text of a file of the crate, if there is such a file.
pub(crate) fn check(manifest: &str, read: &dyn Fn(&str) -> Option<String>) -> Vec<Finding> {
    if !manifest.lines().any(|line| line == PUBLISHED) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut fault = |text: String| found.push(Finding::error(None, text));
    for field in FIELDS {
        if !manifest.lines().any(|line| line.strip_prefix(field).is_some_and(|rest| rest.starts_with(" = "))) {
            fault(format!("is published, and has no {field}"));
        }
    }
    match read("README.md").map(|text| text.lines().count()) {
        None => fault("is published, and has no README.md".to_owned()),
        Some(lines) if !LINES.contains(&lines) => {
            fault(format!("README.md has {lines} lines: {} to {} are an introduction", LINES.start(), LINES.end()));
        }
        Some(_) => {}
    }
    if read("src/lib.rs").is_some_and(|text| !text.lines().any(|line| line.starts_with("//! ```"))) {
        fault("the head of src/lib.rs has no example".to_owned());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str =
        "description = \"a\"\nreadme = \"README.md\"\nkeywords = []\ncategories = []\npublish.workspace = true\n";

    fn texts(manifest: &str, readme: Option<&str>, library: Option<&str>) -> Vec<String> {
        let read = |file: &str| match file {
            "README.md" => readme.map(str::to_owned),
            _ => library.map(str::to_owned),
        };
        check(manifest, &read).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn published_crates_have_what_users_see() {
        let readme = "line\n".repeat(12);
        assert_eq!(texts(MANIFEST, Some(&readme), Some("//! A.\n//!\n//! ```\n")), Vec::<String>::new());
        assert_eq!(texts(MANIFEST, Some(&readme), None), Vec::<String>::new(), "a program");
        assert_eq!(texts(MANIFEST, Some(&readme), Some("//! A.\n")), ["the head of src/lib.rs has no example"]);
        assert_eq!(texts(MANIFEST, None, None), ["is published, and has no README.md"]);
        assert_eq!(texts(MANIFEST, Some("line\n"), None), ["README.md has 1 lines: 10 to 25 are an introduction"]);
        assert_eq!(texts(PUBLISHED, Some(&readme), None).len(), FIELDS.len());
        assert_eq!(texts("publish = false", None, None), Vec::<String>::new());
    }

    #[test]
    fn manifests_of_crates_are_found() {
        assert!(is_manifest("crates/oci/Cargo.toml"));
        assert!(!is_manifest("bench/Cargo.toml") && !is_manifest("crates/a/b/Cargo.toml"));
    }
}
