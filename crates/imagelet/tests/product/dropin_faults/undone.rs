//! Pulls that fail after they wrote something: containerd is as it was before. And records that earlier versions left behind.

use std::collections::BTreeSet;

use registry::testing::{BuiltIndex, ImageBuilder, LayerBuilder, TestRegistry};
use serde_json::json;
use tokio::runtime::Runtime;

use super::{Harbour, Row};
use crate::support::process::{eventually, run, tool};

/// Everything that containerd has.
#[derive(Debug, PartialEq, Eq)]
struct Content {
    records: BTreeSet<String>,
    blobs: BTreeSet<String>,
    snapshots: BTreeSet<Row>,
}

impl Content {
    fn of(h: &Harbour) -> Self {
        let lines = |args: &[&str]| h.ctr(args).lines().map(str::to_owned).collect();
        Self {
            records: lines(&["images", "list", "-q"]),
            blobs: lines(&["content", "list", "-q"]),
            snapshots: h.snapshots(),
        }
    }
}

/// Configs that Go cannot decode into the type of the image specification. Our own parser accepts the last one: containerd detects
/// it, after the record was written.
#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn an_image_that_containerd_cannot_decode_leaves_nothing() {
    let h = Harbour::new(256);
    let runtime = Runtime::new().expect("a runtime");
    let registry = runtime.block_on(TestRegistry::open());
    let good = ImageBuilder::new().layer(LayerBuilder::new().file("a", "good")).build();
    let name = format!("{}/undecodable:1", registry.host());
    registry.push("undecodable", "1", &good);
    h.imagelet.ok(&["pull", &name]);
    let before = Content::of(&h);
    let auto = h.imagelet.clone().global("--pull-engine", "auto");
    for (field, value, words) in [
        ("created", json!(""), "cannot decode the image config: created is not a time of RFC 3339"),
        ("history", json!([{"created": ""}]), "cannot decode the image config: created is not a time of RFC 3339"),
        ("created", json!("2024-13-01T00:00:00Z"), "the runtime does not show the image"),
    ] {
        let layer = LayerBuilder::new().file("b", value.to_string().repeat(1000));
        registry.push("undecodable", "1", &ImageBuilder::new().layer(layer).field(field, value.clone()).build());
        for imagelet in [&h.imagelet, &auto] {
            let said = imagelet.fails(1, &["pull", &name]);
            assert!(said.contains(words) && said.contains("/undecodable"), "{said}");
            h.nothing_on_the_way(&format!("{field} {value}"));
            eventually(&format!("{field} {value}: containerd is as before: {:?}", Content::of(&h)), || {
                Content::of(&h) == before
            });
        }
        // Nothing is refused that containerd takes.
        assert_ne!(h.plain.run(&["pull", &name]).code, Some(0), "{field} {value}");
    }
    assert_eq!(h.visible().len(), 1, "the name leads where it led");
}

/// Two records and content that CRI does not list, as an earlier version left them.
#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn hidden_records_are_found_and_collected() {
    let h = Harbour::new(256);
    let kept = h.push("hidden/kept:1", &[]);
    h.imagelet.ok(&["pull", &kept.name]);
    let before = Content::of(&h);
    let image = ImageBuilder::new().layer(LayerBuilder::new().file("a", "a")).created("").build();
    let layout = h.s.scratch.join("hidden");
    image.write_layout(&layout, "r.example/hidden:1").expect("writes");
    let archive = h.s.scratch.join("hidden.tar");
    run(tool("tar").arg("-cf").arg(&archive).arg("-C").arg(&layout).arg("."));
    let archive = archive.display().to_string();
    for repair in [&["check", "--repair"][..], &["gc"]] {
        h.ctr(&["images", "import", "--no-unpack", "--index-name", "r.example/hidden:1", &archive]);
        let name = "r.example/hidden:1";
        // The CRI plugin may have written it already.
        h.ctr(&["images", "tag", "--force", name, &image.id().to_string()]);
        for record in [name, &image.id().to_string()] {
            h.ctr(&["images", "label", record, "io.cri-containerd.image=managed"]);
        }
        // A record that was just written may be shown in a moment.
        assert!(h.imagelet.ok(&["check"]).contains("everything is as it should be"));
        let later = h.imagelet.clone().later(3600);
        let found = later.run(&["check"]);
        assert_eq!(found.code, Some(1), "{}", found.stdout);
        for record in [name, &image.id().to_string()] {
            assert!(found.stdout.contains(record), "{}", found.stdout);
        }
        assert!(!found.stdout.contains("hidden/kept"), "{}", found.stdout);
        later.ok(repair);
        eventually(&format!("{repair:?} left {:?}", Content::of(&h)), || Content::of(&h) == before);
        later.ok(&["check"]);
    }
    assert_eq!(h.visible().len(), 1);
}

/// A platform that is asked for is that of the image, or there is an error: with every engine, whatever is present.
#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn no_other_platform_is_pulled_than_the_one_that_is_asked_for() {
    let h = Harbour::new(256);
    let runtime = Runtime::new().expect("a runtime");
    let registry = runtime.block_on(TestRegistry::open());
    let (own, other) = match std::env::consts::ARCH {
        "aarch64" => ("linux/arm64", "linux/amd64"),
        _ => ("linux/amd64", "linux/arm64"),
    };
    let of = |platform: &str| {
        let layer = LayerBuilder::new().file(platform, platform.repeat(1000));
        ImageBuilder::new().platform(platform.parse().expect("a platform")).layer(layer).build()
    };
    registry.push("platform", "single", &of(own));
    registry.push(
        "platform",
        "open",
        &ImageBuilder::new().layer(LayerBuilder::new().file("a", "a")).without("os").build(),
    );
    registry.push_index("platform", "index", &BuiltIndex::new(vec![of(own), of(other)]));
    let name = |tag: &str| format!("{}/platform:{tag}", registry.host());
    for (what, imagelet) in [("own store", &h.s.imagelet), ("embedded", &h.imagelet), ("runtime", &h.plain)] {
        let foreign = imagelet.clone().global("--platform", other);
        // Absent, then present.
        for state in ["absent", "present"] {
            let said = foreign.run(&["pull", &name("single")]);
            assert_ne!(said.code, Some(0), "{what}, {state}: {}", said.stdout);
            assert!(said.stderr.contains(other), "{what}, {state}: {}", said.stderr);
            imagelet.ok(&["pull", &name("single")]);
        }
        imagelet.ok(&["pull", &name("open")]);
        imagelet.ok(&["pull", &name("index")]);
        let index = foreign.run(&["pull", &name("index")]);
        // Our own store takes both.
        assert_eq!(index.code == Some(0), what == "own store", "{what}: {}{}", index.stdout, index.stderr);
        assert_eq!(imagelet.images().len(), if what == "own store" { 3 } else { 2 }, "{what}");
    }
    h.nothing_on_the_way("at the end");
}
