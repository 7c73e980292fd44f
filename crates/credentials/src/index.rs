//! [`Index`]: a map from patterns of images to values, in the kubelet's order, without a comparison with every pattern.
//!
//! Hosts without a glob are found by their hash, paths below them by their order, hosts with globs part by part from the
//! right. It knows nothing of credentials. The keyring builds one of each docker configuration.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use crate::glob::{Matchers, WILDCARDS};
use crate::pattern::{BadLocation, PathMatch, Pattern, Target};

/// The key under which docker configurations keep what is for the default registry.
const DEFAULT_REGISTRY: &str = "index.docker.io";

/// Patterns of images and their values.
#[derive(Clone, Debug)]
pub struct Index<T> {
    mode: PathMatch,
    literal: HashMap<Box<str>, Paths<T>>,
    globs: Parts<T>,
    len: usize,
}

impl<T> Default for Index<T> {
    fn default() -> Self {
        Self::new(PathMatch::default())
    }
}

impl<T> Index<T> {
    /// An empty index.
    #[must_use]
    pub fn new(mode: PathMatch) -> Self {
        Self { mode, literal: HashMap::new(), globs: Parts::default(), len: 0 }
    }

    /// How many values are in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a value under a location as docker configurations have them: `quay.io`, `https://quay.io/v1/`,
    /// `*.example.com:5000/team`.
    ///
    /// # Errors
    /// The location is none; nothing was added.
    pub fn insert(&mut self, location: &str, value: T) -> Result<(), BadLocation> {
        let pattern = Pattern::location(location)?;
        let paths = if pattern.is_glob() {
            self.globs.paths_of(&pattern)
        } else if let Some(paths) = self.literal.get_mut(pattern.authority()) {
            paths
        } else {
            self.literal.entry(pattern.authority().into()).or_default()
        };
        paths.insert(pattern.path(), value);
        self.len += 1;
        Ok(())
    }

    /// Returns all values for `repository` (an image without tag and digest): the greater pattern first, which puts the
    /// longer path before the shorter and a host before a glob; values of one pattern as they were added. When nothing
    /// matches and the image is of the default registry, the values of `index.docker.io`.
    #[must_use]
    pub fn lookup<'a>(&'a self, repository: &str) -> Vec<&'a T> {
        let mut found = Vec::new();
        self.find(repository, &mut found);
        if found.len() > 1 {
            found.sort_by(|a, b| b.cmp_pattern(a));
        }
        if found.is_empty() && is_default_registry(repository) {
            return self.of_default_registry().iter().collect();
        }
        let mut values = Vec::with_capacity(found.iter().map(|f| f.values.len()).sum());
        values.extend(found.iter().flat_map(|f| f.values));
        values
    }

    /// The patterns that match, in no order and without the default registry's rule.
    pub(crate) fn find<'a>(&'a self, repository: &str, found: &mut Vec<PatternMatch<'a, T>>) {
        let target = Target::of(repository);
        if !self.literal.is_empty() {
            if let Some((authority, paths)) = self.literal.get_key_value(target.authority) {
                paths.find(self.mode, authority, target.path, found);
            }
            // `url:443`, whose port is written only because a name of one part needs one.
            if target.port == "443"
                && target.ports().count() > 1
                && let Some((authority, paths)) = self.literal.get_key_value(target.host)
            {
                paths.find(self.mode, authority, target.path, found);
            }
        }
        if !self.globs.is_empty() && !target.host.starts_with('[') {
            self.globs.find(self.mode, Some(target.host), target, found);
        }
    }

    /// Entries under the default registry's own key.
    pub(crate) fn of_default_registry(&self) -> &[T] {
        self.literal.get(DEFAULT_REGISTRY).and_then(|paths| paths.0.get("".as_bytes())).map_or(&[], Vec::as_slice)
    }
}

/// Returns true if an image (without tag and digest) is of the default registry, by the kubelet's rule, which counts
/// `localhost/foo` among them.
pub(crate) fn is_default_registry(repository: &str) -> bool {
    match repository.split_once('/') {
        None => !repository.is_empty(),
        Some((first, _)) => {
            !first.is_empty() && (matches!(first, "docker.io" | DEFAULT_REGISTRY) || !first.contains(['.', ':']))
        }
    }
}

/// A pattern that matches, with its values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PatternMatch<'a, T> {
    authority: &'a str,
    path: &'a [u8],
    pub(crate) values: &'a [T],
}

impl<T> PatternMatch<'_, T> {
    /// By the patterns' bytes.
    pub(crate) fn cmp_pattern(&self, other: &Self) -> Ordering {
        let bytes = |found: &Self| (found.authority.as_bytes(), found.path);
        let ((a, a_path), (b, b_path)) = (bytes(self), bytes(other));
        a.iter().chain(a_path).cmp(b.iter().chain(b_path))
    }
}

/// The paths below one host, each with its values; the empty path is for the whole host.
#[derive(Clone, Debug)]
struct Paths<T>(BTreeMap<Box<[u8]>, Vec<T>>);

impl<T> Default for Paths<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> Paths<T> {
    fn insert(&mut self, path: &str, value: T) {
        match self.0.get_mut(path.as_bytes()) {
            Some(values) => values.push(value),
            None => {
                self.0.insert(path.as_bytes().into(), vec![value]);
            }
        }
    }

    fn find<'a>(&'a self, mode: PathMatch, authority: &'a str, path: &str, found: &mut Vec<PatternMatch<'a, T>>) {
        prefixes(&self.0, path.as_bytes(), |prefix, values| {
            if mode.under(prefix, path.as_bytes()) {
                found.push(PatternMatch { authority, path: prefix, values });
            }
        });
    }
}

/// Calls `each` with every key that `text` begins with, the longest first.
fn prefixes<'a, V>(map: &'a BTreeMap<Box<[u8]>, V>, text: &[u8], mut each: impl FnMut(&'a [u8], &'a V)) {
    let mut left = text;
    // A prefix of `left` is not greater than `left`. The greatest key that is not greater is either a prefix of `left`, or
    // shares with it the longest prefix that a shorter key can have.
    while let Some((key, value)) = map.range::<[u8], _>((Bound::Unbounded, Bound::Included(left))).next_back() {
        let common = key.iter().zip(left).take_while(|(a, b)| a == b).count();
        if common == key.len() {
            each(key, value);
            if common == 0 {
                return;
            }
            left = &left[..common - 1];
        } else {
            left = &left[..common];
        }
    }
}

/// Hosts with globs, by their parts from the right: a tree that branches by literal parts, and by globs under the text
/// that these begin with.
#[derive(Clone, Debug)]
struct Parts<T> {
    literal: HashMap<Box<str>, Parts<T>>,
    globs: BTreeMap<Box<[u8]>, ByGlob<T>>,
    /// Below the part `*`, by far the most common glob, which needs no matcher.
    any: Option<Box<Parts<T>>>,
    /// The hosts that end here, by port: each with its whole text.
    ends: BTreeMap<Box<str>, (Box<str>, Paths<T>)>,
}

/// Globs that begin with the same text, with what lies below each.
#[derive(Clone, Debug)]
struct ByGlob<T> {
    nodes: BTreeMap<Box<str>, Parts<T>>,
    /// Matchers of the keys of `nodes`.
    matchers: Matchers,
}

impl<T> Default for ByGlob<T> {
    fn default() -> Self {
        Self { nodes: BTreeMap::new(), matchers: Matchers::default() }
    }
}

impl<T> ByGlob<T> {
    fn node(&mut self, glob: &str) -> &mut Parts<T> {
        if !self.nodes.contains_key(glob) {
            self.matchers.reset();
        }
        self.nodes.entry(glob.into()).or_default()
    }

    /// Returns the nodes of the globs that match a part.
    fn find(&self, part: &str) -> impl Iterator<Item = &Parts<T>> {
        let found = self.matchers.find(self.nodes.keys().map(AsRef::as_ref), part);
        let mut nodes = self.nodes.values();
        let mut passed = 0;
        found.into_iter().filter_map(move |at| {
            let skipped = at - passed;
            passed = at + 1;
            nodes.nth(skipped)
        })
    }
}

impl<T> Default for Parts<T> {
    fn default() -> Self {
        Self { literal: HashMap::new(), globs: BTreeMap::new(), any: None, ends: BTreeMap::new() }
    }
}

impl<T> Parts<T> {
    fn is_empty(&self) -> bool {
        self.literal.is_empty() && self.globs.is_empty() && self.any.is_none()
    }

    fn paths_of(&mut self, pattern: &Pattern) -> &mut Paths<T> {
        let mut node = self;
        for part in pattern.host().rsplit('.') {
            node = match part.find(WILDCARDS) {
                None => node.literal.entry(part.into()).or_default(),
                Some(_) if part == "*" => node.any.get_or_insert_default(),
                Some(literal) => node.globs.entry(part.as_bytes()[..literal].into()).or_default().node(part),
            };
        }
        &mut node.ends.entry(pattern.port().into()).or_insert_with(|| (pattern.authority().into(), Paths::default())).1
    }

    /// Goes down by the parts of `host` that are left. The depth is bounded by the length of a pattern's host.
    fn find<'a>(
        &'a self,
        mode: PathMatch,
        host: Option<&str>,
        target: Target<'_>,
        found: &mut Vec<PatternMatch<'a, T>>,
    ) {
        let Some(host) = host else {
            for (authority, paths) in target.ports().filter_map(|port| self.ends.get(port)) {
                paths.find(mode, authority, target.path, found);
            }
            return;
        };
        let (left, part) = host.rsplit_once('.').map_or((None, host), |(left, part)| (Some(left), part));
        if let Some(node) = self.literal.get(part) {
            node.find(mode, left, target, found);
        }
        if let Some(node) = &self.any {
            node.find(mode, left, target, found);
        }
        prefixes(&self.globs, part.as_bytes(), |_, globs| {
            for node in globs.find(part) {
                node.find(mode, left, target, found);
            }
        });
    }
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
