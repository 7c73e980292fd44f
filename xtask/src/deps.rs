//! `cargo xtask deps`: the workspace, as `cargo metadata` resolves it, against the table of borders.
//!
//! It prints every offending arrow, with the path that leads to it and the reason for the rule. What a crate uses only in its
//! tests, or only with an optional feature (`testing`), is not part of the product and is judged by a freer rule. `circles.rs` does the
//! same for the files inside of each crate.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use serde::Deserialize;

use crate::chore::ChoreReport;
use crate::circles;
use crate::deps_table::{BORDERS, Border, WRAPPERS, Wrapper};

/// The part of `cargo metadata` that is read here.
#[derive(Debug, Deserialize)]
struct CargoMetadata {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    #[serde(default)]
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
}

/// A dependency as a manifest declares it.
#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    /// `None` is a normal one; `dev` or `build`.
    kind: Option<String>,
    #[serde(default)]
    optional: bool,
    #[serde(default)]
    features: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<ResolvedPackage>,
}

#[derive(Debug, Deserialize)]
struct ResolvedPackage {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Debug, Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<EdgeKind>,
}

#[derive(Debug, Deserialize)]
struct EdgeKind {
    kind: Option<String>,
}

/// The entry point of the chore.
pub(crate) fn run(root: &Path) -> anyhow::Result<ChoreReport> {
    #[expect(clippy::disallowed_methods, reason = "a chore: it asks the very cargo that runs it")]
    let mut command = Command::new(env!("CARGO"));
    let output = command
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root)
        .output()
        .context("run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let metadata: CargoMetadata = serde_json::from_slice(&output.stdout).context("read cargo metadata")?;
    let mut failures = check(&metadata, BORDERS, WRAPPERS);
    let mut count = 0;
    for package in members(&metadata) {
        let directory = package.manifest_path.parent().unwrap_or(root).join("src");
        let edges =
            circles::edges(&circles::sources(&directory)?).with_context(|| format!("imports of {}", package.name))?;
        let circles = circles::circles(&edges);
        failures.extend(circles.iter().map(|circle| circle.describe(&package.name)));
        let of_modules = circles::circles(&circles::edges_of_siblings(&edges));
        failures.extend(of_modules.iter().map(|circle| circle.describe(&package.name)));
        count += circles.len() + of_modules.len();
    }
    let arrows: usize = members(&metadata).map(|p| p.dependencies.len()).sum();
    Ok(ChoreReport {
        failures,
        warnings: Vec::new(),
        seen: format!(
            "{} crates, {arrows} arrows, {} packages, {count} circles of imports",
            metadata.workspace_members.len(),
            metadata.packages.len()
        ),
    })
}

fn members(metadata: &CargoMetadata) -> impl Iterator<Item = &Package> {
    metadata.packages.iter().filter(|p| metadata.workspace_members.contains(&p.id))
}

/// Every broken rule, one line each.
fn check(metadata: &CargoMetadata, borders: &[Border], wrappers: &[Wrapper]) -> Vec<String> {
    let names: BTreeSet<&str> = members(metadata).map(|p| p.name.as_str()).collect();
    let mut found = Vec::new();
    for border in borders {
        if !names.contains(border.package) {
            found.push(format!("{}: in the table of borders, but not in the workspace", border.package));
        }
    }
    for package in members(metadata) {
        let Some(border) = borders.iter().find(|b| b.package == package.name) else {
            found.push(format!("{}: not in the table of borders (xtask/src/deps_table.rs)", package.name));
            continue;
        };
        for dependency in &package.dependencies {
            direct(package, dependency, border, &names, wrappers, &mut found);
        }
        for forbidden in border.never_reaches {
            if let Some(path) = reach(metadata, package, forbidden) {
                found.push(format!("{}: {}", path.join(" -> "), border.reason));
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Checks a declared dependency against its crate's border and the wrappers.
fn direct(
    package: &Package,
    dependency: &Dependency,
    border: &Border,
    workspace: &BTreeSet<&str>,
    wrappers: &[Wrapper],
    found: &mut Vec<String>,
) {
    let (from, to) = (package.name.as_str(), dependency.name.as_str());
    let in_tests = dependency.kind.as_deref() == Some("dev");
    if workspace.contains(to) {
        // A crate's tests may use itself, with its feature `testing`.
        let known = border.uses.contains(&to) || (in_tests && (border.tests_use.contains(&to) || from == to));
        if !known {
            let place = if in_tests { " (in tests)" } else { "" };
            found.push(format!("{from} -> {to}{place}: {}", border.reason));
        }
        if !in_tests && dependency.features.iter().any(|f| f == "testing") {
            found.push(format!("{from} -> {to} with feature testing: fakes do not belong in the product"));
        }
        return;
    }
    if in_tests || dependency.optional {
        return;
    }
    if border.third_party.is_some_and(|allowed| !allowed.contains(&to)) {
        found.push(format!("{from} -> {to}: {}", border.reason));
    }
    for wrapper in wrappers {
        if wrapper.packages.contains(&to) && !wrapper.owners.contains(&from) {
            found.push(format!("{from} -> {to}: {} (owned by {})", wrapper.reason, wrapper.owners.join(", ")));
        }
    }
}

/// The shortest path from a member to a package of that name, over normal dependencies that are not optional in the
/// member that declares them; `None` if there is none.
fn reach(metadata: &CargoMetadata, from: &Package, forbidden: &str) -> Option<Vec<String>> {
    let packages: BTreeMap<&str, &Package> = metadata.packages.iter().map(|p| (p.id.as_str(), p)).collect();
    let nodes: BTreeMap<&str, &ResolvedPackage> = metadata.resolve.nodes.iter().map(|n| (n.id.as_str(), n)).collect();
    let mut came_from: BTreeMap<&str, Option<&str>> = BTreeMap::from([(from.id.as_str(), None)]);
    let mut queue = VecDeque::from([from.id.as_str()]);
    while let Some(id) = queue.pop_front() {
        let name = packages.get(id).map_or("", |p| p.name.as_str());
        if name == forbidden && id != from.id {
            let mut path = Vec::new();
            let mut step = Some(id);
            while let Some(id) = step {
                path.push(packages.get(id).map_or_else(|| id.to_owned(), |p| p.name.clone()));
                step = came_from.get(id).copied().flatten();
            }
            path.reverse();
            return Some(path);
        }
        let is_member = metadata.workspace_members.iter().any(|m| m == id);
        for edge in nodes.get(id).map(|n| n.deps.as_slice()).unwrap_or_default() {
            let normal = edge.dep_kinds.iter().any(|k| k.kind.is_none());
            let to = packages.get(edge.pkg.as_str()).map_or("", |p| p.name.as_str());
            if !normal || (is_member && packages.get(id).is_some_and(|p| only_optional(p, to))) {
                continue;
            }
            if !came_from.contains_key(edge.pkg.as_str()) {
                came_from.insert(&edge.pkg, Some(id));
                queue.push_back(&edge.pkg);
            }
        }
    }
    None
}

/// Returns true if a package names `to` as a normal dependency only where an optional feature brings it.
fn only_optional(package: &Package, to: &str) -> bool {
    let mut normal = package.dependencies.iter().filter(|d| d.name == to && d.kind.is_none()).peekable();
    normal.peek().is_some() && normal.all(|d| d.optional)
}

#[cfg(test)]
#[path = "deps_tests.rs"]
mod tests;
