//! `cargo xtask containerd-versions`: writes docs/containerd-versions.md, the table of the containerds that the tests ran with, from what
//! `scripts/containerd-of.sh` kept of them in target/containerd/results. Runs no test.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};

use crate::chore::ChoreReport;

const RESULTS: &str = "target/containerd/results";
const PAGE: &str = "docs/containerd-versions.md";
const HEAD: &str = "# Versions of containerd that were tested\n\n\
    Each column is a containerd, unmodified from a Debian package, with runc and the CNI plugins of Debian 12; each cell says how many\n\
    tests of an area passed with it. Written by `cargo xtask containerd-versions` from the results of `scripts/containerd-of.sh`,\n\
    which runs the same tests with any other containerd (`scripts/containerd-of.sh DIR`). How to run one of them with another\n\
    containerd: `CONTAINERD=DIR cargo nextest run …`.\n\n";

/// Areas, each with the beginnings of the names of its tests.
const AREAS: &[(&str, &[&str])] = &[
    ("containerd's API, and images made by hand through it", &["imagelet-containerd"]),
    ("CRI ImageService, containerd alone and behind `serve`", &["conformance::"]),
    ("CRI RuntimeService, containerd alone and behind `serve`", &["runtime_conformance::"]),
    ("snapshots of our engine compared with containerd's own", &["engines_trees::", "dropin", "pull_engine"]),
    ("trees of imagelet's own store compared with containerd's", &["tree::", "layers::"]),
    ("`imagelet run`: pods, thirty at once among them", &["pods::"]),
    ("garbage collection", &["gc_"]),
    ("pulls, lists, tenants, crowds, streams", &[""]),
];

/// The tests of one containerd.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tested {
    version: String,
    suite: String,
    snapshotter: String,
    /// Names, and true where the test passed.
    tests: BTreeMap<String, bool>,
}

impl Tested {
    /// Reads a file of results: `suite`, `version`, `snapshotter`, then `passed` or `failed` with the name of a test.
    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut tested = Self::default();
        for line in text.lines() {
            let (word, rest) = line.split_once(' ').with_context(|| format!("no result: {line:?}"))?;
            match word {
                "suite" => tested.suite = rest.to_owned(),
                "version" => tested.version = rest.to_owned(),
                "snapshotter" => tested.snapshotter = rest.to_owned(),
                _ => {
                    ensure!(matches!(word, "passed" | "failed"), "no result: {line:?}");
                    let name = rest.strip_prefix("imagelet::product ").unwrap_or(rest);
                    tested.tests.insert(name.to_owned(), word == "passed");
                }
            }
        }
        ensure!(!tested.version.is_empty(), "no line says the version");
        Ok(tested)
    }

    /// The numbers by which versions are in order.
    fn order(&self) -> (Vec<u32>, bool) {
        let numbers = self.version.split('.').filter_map(|number| number.parse().ok()).collect();
        (numbers, self.snapshotter != "overlayfs")
    }

    /// The cell of some tests: how many of them passed.
    fn cell(&self, of: impl Fn(&str) -> bool) -> String {
        let all: Vec<bool> = self.tests.iter().filter(|(name, _)| of(name)).map(|(_, &passed)| passed).collect();
        match (all.iter().filter(|&&passed| passed).count(), all.len()) {
            (_, 0) => "–".to_owned(),
            (passed, all) if passed == all => format!("{passed} passed"),
            (passed, all) => format!("{passed} of {all}"),
        }
    }
}

/// The entry point of the chore: writes the page.
pub(crate) fn run(root: &Path) -> anyhow::Result<ChoreReport> {
    let place = root.join(RESULTS);
    let mut all = Vec::new();
    for entry in fs::read_dir(&place).with_context(|| format!("{RESULTS}: run scripts/containerd-of.sh first"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            all.push(Tested::parse(&text).with_context(|| path.display().to_string())?);
        }
    }
    ensure!(!all.is_empty(), "{RESULTS} has no results: run scripts/containerd-of.sh first");
    all.sort_by_key(Tested::order);
    fs::write(root.join(PAGE), page(&all)).with_context(|| format!("write {PAGE}"))?;
    Ok(ChoreReport { seen: format!("{} containerds", all.len()), ..ChoreReport::default() })
}

fn page(all: &[Tested]) -> String {
    let mut out = HEAD.to_owned();
    let mut row = |first: &str, cell: &dyn Fn(&Tested) -> String| {
        let cells: Vec<String> = all.iter().map(cell).collect();
        let _ = writeln!(out, "| {first} | {} |", cells.join(" | "));
    };
    row("containerd", &|tested| tested.version.clone());
    row("---", &|_| "---".to_owned());
    row("Debian suite", &|tested| tested.suite.clone());
    row("snapshotter", &|tested| tested.snapshotter.clone());
    for (area, _) in AREAS {
        row(area, &|tested| tested.cell(|name| area_of(name) == *area));
    }
    row("all", &|tested| tested.cell(|_| true));
    let failed: Vec<String> = all
        .iter()
        .flat_map(|tested| {
            let failed = tested.tests.iter().filter(|(_, passed)| !**passed);
            failed.map(|(name, _)| format!("- {} with {}: `{name}`", tested.version, tested.snapshotter))
        })
        .collect();
    if !failed.is_empty() {
        let _ = writeln!(out, "\nNot passed:\n{}", failed.join("\n"));
    }
    out
}

/// The first area that a test belongs to.
fn area_of(name: &str) -> &'static str {
    let fits = |starts: &[&str]| starts.iter().any(|start| name.starts_with(start));
    AREAS.iter().find(|(_, starts)| fits(starts)).map_or("", |(area, _)| area)
}

#[cfg(test)]
#[path = "containerd_versions_tests.rs"]
mod tests;
