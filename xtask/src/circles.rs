//! Circles of imports inside the crates: files that need each other in a loop. `deps.rs` calls this with each crate.
//!
//! A file needs another if its code or its imports name something that the other defines, however many re-exports are between. A
//! declaration (`mod x;`) and a re-export alone (`pub use`) are no need.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Context as _;

use crate::chore::files_below;
use crate::counts::is_tests;
use crate::modules::{CrateSources, Edges, ModuleTree};

/// Files of one crate that need each other, and the edges among them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Circle {
    files: BTreeSet<String>,
    edges: Edges,
}

/// Every file below a crate's `src/` that belongs to the product.
pub(crate) fn sources(directory: &Path) -> anyhow::Result<CrateSources> {
    let mut sources = CrateSources::new();
    for path in files_below(directory)? {
        let name = path.strip_prefix(directory).unwrap_or(&path).to_string_lossy().into_owned();
        if name.ends_with(".rs") && !is_tests(&format!("src/{name}")) {
            let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            sources.insert(name, text);
        }
    }
    Ok(sources)
}

/// The edges between the files of a crate.
pub(crate) fn edges(sources: &CrateSources) -> anyhow::Result<Edges> {
    let mut edges = Edges::new();
    for root in sources.keys().filter(|f| *f == "lib.rs" || *f == "main.rs") {
        ModuleTree::read(sources, root)?.edges(&mut edges);
    }
    Ok(edges)
}

/// The edges between sibling modules, each taken with everything below it. A module and its own submodules are not siblings.
pub(crate) fn edges_of_siblings(edges: &Edges) -> Edges {
    let mut siblings = Edges::new();
    for ((from, to), names) in edges {
        let (from, to) = (module_path(from), module_path(to));
        let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
        if shared < from.len() && shared < to.len() {
            let pair = (from[..=shared].join("/"), to[..=shared].join("/"));
            siblings.entry(pair).or_default().extend(names.iter().cloned());
        }
    }
    siblings
}

/// The path of the module that a file holds; empty for the root of a crate.
fn module_path(file: &str) -> Vec<&str> {
    let path = file.strip_suffix(".rs").unwrap_or(file);
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if path == "lib" || path == "main" { Vec::new() } else { path.split('/').collect() }
}

/// The circles that edges form, in the order of their first files or modules.
pub(crate) fn circles(edges: &Edges) -> Vec<Circle> {
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in edges.keys() {
        next.entry(from).or_default().push(to);
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> = next.keys().map(|from| (*from, reach(&next, from))).collect();
    let mut circles: Vec<Circle> = Vec::new();
    for (file, far) in &reached {
        if circles.iter().any(|c| c.files.contains(*file)) || !far.contains(file) {
            continue;
        }
        let back = |other: &&&str| reached.get(**other).is_some_and(|far| far.contains(file));
        let files: BTreeSet<String> = far.iter().filter(back).map(|f| (*f).to_owned()).collect();
        let inside = |(from, to): &(String, String)| files.contains(from) && files.contains(to);
        let edges = edges.iter().filter(|(pair, _)| inside(pair)).map(|(p, n)| (p.clone(), n.clone())).collect();
        circles.push(Circle { files, edges });
    }
    circles
}

/// Every file that a path of at least one edge leads to.
fn reach<'a>(next: &BTreeMap<&'a str, Vec<&'a str>>, from: &str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut pending: Vec<&str> = next.get(from).cloned().unwrap_or_default();
    while let Some(file) = pending.pop() {
        if seen.insert(file) {
            pending.extend(next.get(file).into_iter().flatten());
        }
    }
    seen
}

impl Circle {
    /// The files, and each edge with the names that tie it.
    pub(crate) fn describe(&self, package: &str) -> String {
        let files: Vec<&str> = self.files.iter().map(String::as_str).collect();
        let kind = if files.iter().all(|file| file.ends_with(".rs")) { "files" } else { "modules" };
        let mut text = format!("{package}: {} {kind} import each other in a circle: {}", files.len(), files.join(", "));
        for ((from, to), names) in &self.edges {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            text.push_str(&format!("\n    {from} -> {to}: {}", names.join(", ")));
        }
        text
    }
}

#[cfg(test)]
#[path = "circles_tests.rs"]
mod tests;
