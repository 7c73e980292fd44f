//! Tests of `deps`: small made-up workspaces, one for each rule, each of which must be found.

use serde_json::{Value, json};

use super::*;

const TABLE: &[Border] = &[
    Border {
        package: "low",
        uses: &[],
        tests_use: &[],
        third_party: Some(&["serde"]),
        never_reaches: &["tokio"],
        reason: "low is pure",
    },
    Border {
        package: "high",
        uses: &["low"],
        tests_use: &["side"],
        third_party: None,
        never_reaches: &["tonic"],
        reason: "high knows no wire",
    },
    Border { package: "side", uses: &["low"], tests_use: &[], third_party: None, never_reaches: &[], reason: "side" },
];
const OWNED: &[Wrapper] = &[Wrapper { packages: &["reqwest"], owners: &["side"], reason: "only side speaks HTTP" }];

/// A dependency: name, kind, optional, features.
type Dep = (&'static str, Option<&'static str>, bool, &'static [&'static str]);

/// A workspace of `low`, `high` and `side`, with these dependencies each and these third-party edges.
fn workspace(low: &[Dep], high: &[Dep], side: &[Dep], third_party: &[(&str, &[&str])]) -> CargoMetadata {
    let mut packages = Vec::new();
    let mut nodes = Vec::new();
    let mut add = |name: &str, deps: &[Dep]| {
        let declared: Vec<Value> = deps
            .iter()
            .map(|(n, kind, optional, features)| json!({"name": n, "kind": kind, "optional": optional, "features": features}))
            .collect();
        let edges: Vec<Value> =
            deps.iter().map(|(n, kind, ..)| json!({"pkg": n, "dep_kinds": [{"kind": kind}]})).collect();
        packages.push(json!({"id": name, "name": name, "dependencies": declared}));
        nodes.push(json!({"id": name, "deps": edges}));
    };
    add("low", low);
    add("high", high);
    add("side", side);
    for (name, deps) in third_party {
        let deps: Vec<Dep> = deps
            .iter()
            .map(|d| (Box::leak(d.to_string().into_boxed_str()) as &str, None, false, &[] as &[&str]))
            .collect();
        add(name, &deps);
    }
    let all = json!({"packages": packages, "workspace_members": ["low", "high", "side"], "resolve": {"nodes": nodes}});
    serde_json::from_value(all).expect("made of the same fields")
}

fn check_made(low: &[Dep], high: &[Dep], side: &[Dep], third_party: &[(&str, &[&str])]) -> Vec<String> {
    check(&workspace(low, high, side, third_party), TABLE, OWNED)
}

const NORMAL: Option<&str> = None;
const DEV: Option<&str> = Some("dev");

#[test]
fn a_workspace_that_keeps_the_rules_has_no_findings() {
    let found = check_made(
        &[("serde", NORMAL, false, &[]), ("tokio", NORMAL, true, &[]), ("proptest", DEV, false, &[])],
        &[("low", NORMAL, false, &[]), ("side", DEV, false, &["testing"]), ("high", DEV, false, &[])],
        &[("low", NORMAL, false, &[]), ("reqwest", NORMAL, false, &[])],
        &[("serde", &[]), ("tokio", &[]), ("reqwest", &["tokio"]), ("proptest", &["tokio"])],
    );
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn every_kind_of_wrong_arrow_is_found() {
    let cases: &[(&str, Vec<String>, &[&str])] = &[
        ("an arrow upwards", check_made(&[("high", NORMAL, false, &[])], &[], &[], &[]), &["low -> high: low is pure"]),
        (
            "an arrow between siblings, outside tests",
            check_made(&[], &[("side", NORMAL, false, &[])], &[], &[]),
            &["high -> side: high knows no wire"],
        ),
        (
            "a sibling in tests which the table does not name",
            check_made(&[], &[], &[("high", DEV, false, &[])], &[]),
            &["side -> high (in tests): side"],
        ),
        (
            "a third party that is not on a pure crate's list",
            check_made(&[("rand", NORMAL, false, &[])], &[], &[], &[("rand", &[])]),
            &["low -> rand: low is pure"],
        ),
        (
            "a third party that somebody else owns",
            check_made(&[], &[("reqwest", NORMAL, false, &[])], &[], &[("reqwest", &[])]),
            &["high -> reqwest: only side speaks HTTP (owned by side)"],
        ),
        (
            "what comes in behind an innocent name",
            check_made(
                &[("serde", NORMAL, false, &[])],
                &[],
                &[],
                &[("serde", &["glue"]), ("glue", &["tokio"]), ("tokio", &[])],
            ),
            &["low -> serde -> glue -> tokio: low is pure"],
        ),
        (
            "a fake in the product",
            check_made(&[], &[("low", NORMAL, false, &["testing"])], &[], &[]),
            &["high -> low with feature testing: fakes do not belong in the product"],
        ),
    ];
    for (name, found, want) in cases {
        assert_eq!(found, want, "{name}");
    }
}

#[test]
fn the_table_and_the_workspace_name_the_same_crates() {
    let mut metadata = workspace(&[], &[], &[], &[]);
    assert_eq!(check(&metadata, &TABLE[..2], OWNED), ["side: not in the table of borders (xtask/src/deps_table.rs)"]);
    metadata.packages.retain(|p| p.name != "side");
    assert_eq!(check(&metadata, TABLE, OWNED), ["side: in the table of borders, but not in the workspace"]);
}

#[test]
fn no_border_allows_an_arrow_back() {
    for border in BORDERS {
        for used in border.uses {
            let other = BORDERS.iter().find(|b| b.package == *used).expect("the table names itself only");
            assert!(!other.uses.contains(&border.package), "{} and {used} would use each other", border.package);
        }
    }
}
