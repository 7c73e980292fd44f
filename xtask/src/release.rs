//! The places that name the version of the workspace: a change of one is a change of all, so that a commit can be tagged at any time.
//!
//! Pure; `tidy.rs` reads the files.

use crate::tidy_rules::Finding;

/// The manifest that has the version.
pub(crate) const MANIFEST: &str = "Cargo.toml";
/// Files, and the start of the text that names the version in them. `{}` is the version.
const PLACES: &[(&str, &str)] = &[
    ("CHANGELOG.md", "\n## [{}] - 20"),
    ("README.md", "\nVersion {}: "),
    ("packaging/kustomize/kustomization.yaml", "\n  newTag: {}\n"),
];

/// The faults of the places. `read` answers with a file's text if there is such a file.
pub(crate) fn check(manifest: &str, read: &dyn Fn(&str) -> Option<String>) -> Vec<(String, Finding)> {
    let section = manifest.split("\n[").find_map(|section| section.strip_prefix("workspace.package]\n"));
    let line = section.and_then(|section| section.lines().find_map(|line| line.strip_prefix("version = ")));
    let Some(version) = line.map(|line| line.trim_matches('"')) else {
        return vec![(MANIFEST.to_owned(), Finding::error(None, "has no version of the workspace".to_owned()))];
    };
    let lacks = |(file, text): &&(&str, &str)| !read(file).unwrap_or_default().contains(&text.replace("{}", version));
    let fault = |(file, text): &(&str, &str)| {
        let text = format!("does not name the version of the workspace: {:?}", text.trim().replace("{}", version));
        ((*file).to_owned(), Finding::error(None, text))
    };
    PLACES.iter().filter(lacks).map(fault).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_names_the_version_of_the_workspace() {
        let manifest = "[workspace]\nversion = \"9\"\n\n[workspace.package]\nedition = \"2024\"\nversion = \"1.2.0\"\n";
        let read = |of_readme: &'static str| {
            move |file: &str| match file {
                "README.md" => Some(format!("# A\nVersion {of_readme}: works\n")),
                "CHANGELOG.md" => Some("# Changelog\n## [Unreleased]\n## [1.2.0] - 2026-01-01\n".to_owned()),
                _ => Some("images:\n  newTag: 1.2.0\n".to_owned()),
            }
        };
        assert_eq!(check(manifest, &read("1.2.0")), []);
        let found = check(manifest, &read("1.1.0"));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, "README.md");
        assert_eq!(check(manifest, &|_| None).len(), PLACES.len());
        assert_eq!(check("[workspace]\n", &|_| None).len(), 1);
    }
}
