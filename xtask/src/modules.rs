//! The module tree of one crate, read from its sources with `syn`, and the resolution of paths in it.
//!
//! Pure: from a map of file names to texts. Left out are tests, fakes and fuzz targets (by file name and by `cfg`), documentation, and
//! files outside of the crate. `circles.rs` asks for the edges.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, Meta, UseTree, Visibility};

/// The sources of a crate: path below `src/` → text.
pub(crate) type CrateSources = BTreeMap<String, String>;

/// A path in the code, as its segments.
type Segments = Vec<String>;

/// The deepest chain of re-exports that is followed.
const CHAIN: usize = 24;

/// All modules that hang below one root (`lib.rs`, `main.rs`).
#[derive(Debug, Default)]
pub(crate) struct ModuleTree {
    modules: Vec<Module>,
}

/// A module: a file, or a `mod x { … }` inside of one.
#[derive(Debug, Default)]
struct Module {
    file: String,
    /// `None` for the root.
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// Names that are defined in this very module.
    items: BTreeSet<String>,
    uses: Vec<Import>,
    /// Paths in the code, imports aside.
    paths: BTreeSet<Segments>,
}

/// A name that a `use` brings.
#[derive(Debug)]
struct Import {
    path: Segments,
    /// The name in the module, or `None` for all names below `path`.
    alias: Option<String>,
    /// A re-export. That alone does not make the module depend on it.
    re_export: bool,
}

/// The module or item that a path leads to.
#[derive(Debug, Clone)]
enum PathTarget {
    Module(usize),
    Item { module: usize, name: String },
}

/// Pairs of a file and another that it needs, with the names that it takes from there.
pub(crate) type Edges = BTreeMap<(String, String), BTreeSet<String>>;

impl ModuleTree {
    /// Reads the tree below a root file.
    pub(crate) fn read(sources: &CrateSources, root: &str) -> anyhow::Result<Self> {
        let mut tree = Self::default();
        tree.add_file(sources, root, None, "")?;
        Ok(tree)
    }

    /// Every pair of different files of which the first uses a name that the second defines.
    pub(crate) fn edges(&self, edges: &mut Edges) {
        for (id, module) in self.modules.iter().enumerate() {
            let imports = module.uses.iter().filter(|u| !u.re_export && u.alias.is_some()).map(|u| &u.path);
            for path in imports.chain(&module.paths) {
                if let Some(PathTarget::Item { module: to, name }) = self.resolve(id, path, 0) {
                    let (from, to) = (&module.file, &self.modules[to].file);
                    if from != to {
                        edges.entry((from.clone(), to.clone())).or_default().insert(name);
                    }
                }
            }
        }
    }

    /// Adds the module in `file`; modules that it declares are read from `directory`, which ends with a slash or is empty.
    fn add_file(
        &mut self,
        sources: &CrateSources,
        file: &str,
        parent: Option<usize>,
        directory: &str,
    ) -> anyhow::Result<usize> {
        let text = sources.get(file).with_context(|| format!("{file} is not there"))?;
        let parsed = syn::parse_file(text).with_context(|| format!("parse {file}"))?;
        let id = self.add(file, parent);
        self.fill(sources, id, &parsed.items, directory)?;
        Ok(id)
    }

    fn add(&mut self, file: &str, parent: Option<usize>) -> usize {
        self.modules.push(Module { file: file.to_owned(), parent, ..Module::default() });
        self.modules.len() - 1
    }

    fn fill(&mut self, sources: &CrateSources, id: usize, items: &[Item], directory: &str) -> anyhow::Result<()> {
        let mut code = PathScan::default();
        for item in items.iter().filter(|item| !left_out(attributes(item))) {
            self.modules[id].items.extend(names(item));
            if let Item::Macro(call) = item
                && call.ident.is_none()
            {
                self.modules[id].items.extend(names_in_macro(call.mac.tokens.clone()));
            }
            let Item::Mod(declared) = item else {
                code.visit_item(item);
                continue;
            };
            let name = declared.ident.to_string();
            let below = format!("{directory}{name}/");
            let child = if let Some((_, items)) = &declared.content {
                let file = self.modules[id].file.clone();
                let child = self.add(&file, Some(id));
                self.fill(sources, child, items, &below)?;
                child
            } else {
                let file = [format!("{directory}{name}.rs"), format!("{below}mod.rs")];
                let Some(file) = file.iter().find(|file| sources.contains_key(*file)) else { continue };
                self.add_file(sources, file, Some(id), &below)?
            };
            self.modules[id].children.insert(name, child);
        }
        self.modules[id].uses.append(&mut code.uses);
        self.modules[id].paths.append(&mut code.paths);
        Ok(())
    }

    fn resolve(&self, from: usize, path: &[String], depth: usize) -> Option<PathTarget> {
        let (first, rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => PathTarget::Module(0),
            "self" => PathTarget::Module(from),
            "super" => PathTarget::Module(self.modules[from].parent?),
            name => self.lookup(from, name, rest.is_empty(), depth + 1)?,
        };
        for (number, name) in rest.iter().enumerate() {
            let PathTarget::Module(module) = at else { break };
            at = match name.as_str() {
                "super" => PathTarget::Module(self.modules[module].parent?),
                "self" => at,
                name => self.lookup(module, name, number + 1 == rest.len(), depth + 1)?,
            };
        }
        Some(at)
    }

    /// The module or item of that name in a module. A module and a function may share it: a path's last segment is rather the item.
    fn lookup(&self, module: usize, name: &str, last: bool, depth: usize) -> Option<PathTarget> {
        if depth > CHAIN {
            return None;
        }
        let this = &self.modules[module];
        let child = || this.children.get(name).copied().map(PathTarget::Module);
        let item = || this.items.contains(name).then(|| PathTarget::Item { module, name: name.to_owned() });
        let imported = || {
            let named = this.uses.iter().filter(|u| u.alias.as_deref() == Some(name));
            let found: Vec<PathTarget> = named.filter_map(|u| self.resolve(module, &u.path, depth)).collect();
            found.iter().find(|t| matches!(t, PathTarget::Item { .. }) == last).or(found.first()).cloned()
        };
        let from_glob = || {
            let globs = this.uses.iter().filter(|u| u.alias.is_none());
            globs.filter_map(|u| self.resolve(module, &u.path, depth)).find_map(|target| match target {
                PathTarget::Module(other) if other != module => self.lookup(other, name, last, depth + 1),
                _ => None,
            })
        };
        if last {
            item().or_else(imported).or_else(child).or_else(from_glob)
        } else {
            child().or_else(imported).or_else(item).or_else(from_glob)
        }
    }
}

/// Collects the imports and the paths of items.
#[derive(Default)]
struct PathScan {
    uses: Vec<Import>,
    paths: BTreeSet<Segments>,
}

impl PathScan {
    fn flatten(&mut self, tree: &UseTree, before: &[String], re_export: bool) {
        let with = |name: &str| before.iter().cloned().chain([name.to_owned()]).collect::<Segments>();
        let mut add = |name: &str, alias: &str| {
            let path = if name == "self" && !before.is_empty() { before.to_vec() } else { with(name) };
            let alias = if alias == "self" { before.last().cloned().unwrap_or_default() } else { alias.to_owned() };
            self.uses.push(Import { path, alias: Some(alias), re_export });
        };
        match tree {
            UseTree::Name(leaf) => add(&leaf.ident.to_string(), &leaf.ident.to_string()),
            UseTree::Rename(leaf) => add(&leaf.ident.to_string(), &leaf.rename.to_string()),
            UseTree::Glob(_) => self.uses.push(Import { path: before.to_vec(), alias: None, re_export }),
            UseTree::Path(path) => self.flatten(&path.tree, &with(&path.ident.to_string()), re_export),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.flatten(tree, before, re_export)),
        }
    }

    /// Paths in what is not parsed: arguments of macros and attributes. A name behind a dot is a field or a method.
    fn scan(&mut self, tokens: TokenStream, strings: bool) {
        let mut path: Segments = Vec::new();
        let mut colons = 0;
        let mut after_dot = false;
        for token in tokens {
            let mut dot = false;
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.paths.insert(std::mem::take(&mut path));
                    }
                    if !after_dot {
                        path.push(ident.to_string());
                    }
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    self.paths.insert(std::mem::take(&mut path));
                    colons = 0;
                    match other {
                        TokenTree::Group(group) => self.scan(group.stream(), strings),
                        TokenTree::Punct(punct) => dot = punct.as_char() == '.',
                        TokenTree::Literal(literal) if strings => {
                            let text = literal.to_string();
                            self.paths.insert(text.trim_matches('"').split("::").map(str::to_owned).collect());
                        }
                        _ => {}
                    }
                }
            }
            after_dot = dot;
        }
        self.paths.insert(path);
    }
}

impl<'ast> Visit<'ast> for PathScan {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_none() {
            self.flatten(&item.tree, &[], !matches!(item.vis, Visibility::Inherited));
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            self.paths.insert(path.segments.iter().map(|s| s.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.scan(call.tokens.clone(), false);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let Meta::List(list) = &attribute.meta {
            // serde names functions in strings.
            self.scan(list.tokens.clone(), list.path.is_ident("serde"));
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !left_out(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    // `pub(in path)` restricts the visibility of an item, and is not a need of it.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}

/// Returns true for what is compiled for tests, fakes or fuzzing alone.
fn left_out(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|a| a.path().is_ident("cfg")).any(|a| {
        let Meta::List(list) = &a.meta else { return false };
        let condition = list.tokens.to_string();
        let mut words = condition.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        !condition.contains("not") && words.any(|w| matches!(w, "test" | "testing" | "fuzzing"))
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Union(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

/// Returns the name that an item defines. A module has none: its declaration alone is no definition.
fn names(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(i) => &i.ident,
        Item::Enum(i) => &i.ident,
        Item::Fn(i) => &i.sig.ident,
        Item::Macro(i) => i.ident.as_ref()?,
        Item::Static(i) => &i.ident,
        Item::Struct(i) => &i.ident,
        Item::Trait(i) => &i.ident,
        Item::Type(i) => &i.ident,
        Item::Union(i) => &i.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

/// The names that an invocation of an item macro defines: each identifier after a keyword of a definition, at the outermost level
/// of the invocation's tokens.
fn names_in_macro(tokens: TokenStream) -> BTreeSet<String> {
    const DEFINES: &[&str] = &["const", "enum", "fn", "static", "struct", "trait", "type", "union"];
    let mut names = BTreeSet::new();
    let mut defines = false;
    for token in tokens {
        let TokenTree::Ident(ident) = token else {
            defines = false;
            continue;
        };
        let word = ident.to_string();
        let is_keyword = DEFINES.contains(&word.as_str());
        if defines && !is_keyword {
            names.insert(word);
        }
        defines = is_keyword;
    }
    names
}
