//! Tests of the circles of imports: small made-up crates, in which each way of naming things ties files or does not.

use super::*;

/// The circles of a crate with these files, each as its edges: `from -> to: names`.
fn circles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let sources: CrateSources = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    let line = |((from, to), names): (&(String, String), &BTreeSet<String>)| {
        format!("{from} -> {to}: {}", names.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
    };
    let found = circles(&edges(&sources).expect("parses"));
    found.iter().map(|c| c.edges.iter().map(line).collect()).collect()
}

const LIB: (&str, &str) = ("lib.rs", "mod a;\nmod b;\n");
const B_NEEDS_A: (&str, &str) = ("b.rs", "use crate::a::A;\npub struct B(A);\npub fn b() {}\n");

/// A crate of `a.rs`, which needs what is given, and `b.rs`, which needs `a.rs`.
fn a_and_b(a: &str) -> Vec<Vec<String>> {
    circles_of(&[LIB, ("a.rs", &format!("{a}\npub struct A;\n")), B_NEEDS_A])
}

#[test]
fn files_that_need_each_other_are_a_circle() {
    let tied = vec![vec!["a.rs -> b.rs: B".to_owned(), "b.rs -> a.rs: A".to_owned()]];
    for a in [
        "use crate::b::B;",
        "pub(crate) use crate::b::B; fn f(_: B) {}",
        "use super::b::{B};",
        "use super::{b::{self, B}};",
        "use crate::b::B as Other;",
        "use crate::b; fn f(_: b::B) {}",
        "use crate::b as other; fn f(_: other::B) {}",
        "use crate::b::*; fn f(_: B) {}",
        "fn f(_: crate::b::B) {}",
        "fn f(_: Vec<Option<super::b::B>>) {}",
        "fn f() { use crate::b::B; }",
        "fn f() { g!(1, crate::b::B { x }, 2); }",
        "#[derive(Debug)] #[g(with = crate::b::B)] struct S;",
        "#[serde(with = \"crate::b::B\")] struct S;",
        "mod inside { use super::super::b::B; }",
        "impl crate::b::B {}",
        "macro_rules! m { () => { $crate::b::B }; }",
    ] {
        assert_eq!(a_and_b(a), tied, "{a}");
    }
}

#[test]
fn what_no_code_of_the_product_needs_ties_nothing() {
    for a in [
        "",
        "use other::b::B;",
        "use ::b::B;",
        "pub use crate::b::B;",
        "use crate::b::*;",
        "use crate::b;",
        "/// See [`crate::b::B`].\nfn f() {}",
        "// crate::b::B",
        "const TEXT: &str = \"crate::b::B\";",
        "#[cfg(test)] use crate::b::B;",
        "#[cfg(test)] mod tests { use crate::b::B; }",
        "#[cfg(any(test, feature = \"testing\"))] mod testing { use crate::b::B; }",
        "#[cfg(test)] fn f(_: crate::b::B) {}",
        "impl A { #[cfg(test)] fn f(_: crate::b::B) {} }",
        "pub(in crate::b) struct C;",
        "fn f(x: u8) { x.b(); x.b; }",
    ] {
        assert_eq!(a_and_b(a), Vec::<Vec<String>>::new(), "{a}");
    }
}

#[test]
fn a_re_export_leads_to_the_file_that_defines_the_name() {
    let found = circles_of(&[
        ("lib.rs", "mod a;\nmod b;\npub use b::B;\npub use a::deep::A;\n"),
        ("a.rs", "pub(crate) mod deep;\n"),
        ("a/deep.rs", "use crate::B;\npub struct A(B);\n"),
        ("b.rs", "use crate::A;\npub struct B(A);\n"),
    ]);
    assert_eq!(found, [["a/deep.rs -> b.rs: B", "b.rs -> a/deep.rs: A"]]);
}

#[test]
fn a_parent_is_a_file_like_the_others() {
    let child = ("part.rs", "use super::Shared;\npub(crate) fn run(_: Shared) {}\n");
    let parent = "mod part;\npub struct Shared;\n";
    assert_eq!(circles_of(&[("lib.rs", parent), child]), Vec::<Vec<String>>::new(), "a declaration is no need");
    let uses = format!("{parent}fn f() {{ part::run(Shared); }}\n");
    assert_eq!(circles_of(&[("lib.rs", &uses), child]), [["lib.rs -> part.rs: run", "part.rs -> lib.rs: Shared"]]);
    let below = [("lib.rs", "mod a;\n"), ("a/mod.rs", uses.as_str()), ("a/part.rs", child.1)];
    assert_eq!(circles_of(&below), [["a/mod.rs -> a/part.rs: run", "a/part.rs -> a/mod.rs: Shared"]]);
}

#[test]
fn names_that_a_macro_defines_tie_files() {
    let found = circles_of(&[
        ("lib.rs", "mod a;\nmod b;\n"),
        ("a.rs", "m! {\n    /// Text.\n    #[derive(Debug)]\n    pub struct A(B) { x: crate::b::B }\n}\n"),
        ("b.rs", "use crate::a::A;\npub struct B(A);\n"),
    ]);
    assert_eq!(found, [["a.rs -> b.rs: B", "b.rs -> a.rs: A"]]);
}

#[test]
fn sibling_modules_are_taken_with_everything_below_them() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\n"),
        ("a.rs", "mod part;\npub struct A;\n"),
        ("a/part.rs", "use crate::b::B;\nuse super::A;\nfn f(_: A, _: B) {}\n"),
        ("b.rs", "use crate::a::A;\npub struct B(A);\n"),
    ];
    let sources: CrateSources = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    let edges = edges(&sources).expect("parses");
    assert_eq!(circles(&edges).len(), 0, "no file imports itself through others");
    let found = circles(&edges_of_siblings(&edges));
    assert_eq!(found.len(), 1);
    assert_eq!(
        found[0].describe("p"),
        "p: 2 modules import each other in a circle: a, b\n    a -> b: B\n    b -> a: A"
    );
}

#[test]
fn a_module_and_a_function_may_share_a_name() {
    let found = circles_of(&[
        ("lib.rs", "mod a;\nmod b;\npub(crate) use a::a;\n"),
        ("a.rs", "use crate::b::b;\npub(crate) fn a() { b() }\n"),
        ("b.rs", "pub(crate) fn b() { crate::a() }\n"),
    ]);
    assert_eq!(found, [["a.rs -> b.rs: b", "b.rs -> a.rs: a"]]);
}

#[test]
fn a_circle_is_as_long_as_it_is() {
    let found = circles_of(&[
        ("lib.rs", "mod a;\nmod b;\nmod c;\nmod d;\n"),
        ("a.rs", "use crate::b::B;\npub struct A;\n"),
        ("b.rs", "use crate::c::C;\nuse crate::d::D;\npub struct B;\n"),
        ("c.rs", "use crate::a::A;\npub struct C;\n"),
        ("d.rs", "pub struct D;\n"),
    ]);
    assert_eq!(found, [["a.rs -> b.rs: B", "b.rs -> c.rs: C", "c.rs -> a.rs: A"]]);
}

#[test]
fn a_circle_is_described_with_what_ties_it() {
    let files = ["a.rs", "b.rs"].map(str::to_owned);
    let edges = [(("a.rs".to_owned(), "b.rs".to_owned()), ["B".to_owned()].into())].into();
    let circle = Circle { files: files.into(), edges };
    assert_eq!(circle.describe("p"), "p: 2 files import each other in a circle: a.rs, b.rs\n    a.rs -> b.rs: B");
}
