//! Pins, keep rules and the goals that a person can set: the same on the embedded store, through an agent that
//! holds it, and on containerd. What a dry run says is what then happens, and it removes nothing itself.

use serde_json::Value;

use crate::support::containerd::Setup;
use crate::support::disk::LoopFs;
use crate::support::gc::{decision, going, removed_names, row};
use crate::support::process::Daemon;
use crate::support::random::noise_of;
use crate::support::scene::Scene;
use crate::support::{Containerd, Imagelet};

/// A place for images, and imagelet with rules for it.
struct Fixture {
    imagelet: Imagelet,
    _agent: Option<Daemon>,
    _containerd: Option<Containerd>,
    s: Scene,
}

fn rules(s: &Scene, imagelet: Imagelet) -> Imagelet {
    imagelet
        .hasty()
        .global("--image-gc-keep", &format!("{}/base/*", s.registry.host()))
        .global("--pod-infra-container-image", &s.registry.name("infra/pause:1"))
}

impl Fixture {
    fn embedded() -> Self {
        let s = Scene::new();
        // A disk to which no other process writes.
        let disk = LoopFs::ext4(256).mount(&s.scratch, "disk");
        Self { imagelet: rules(&s, Imagelet::on(&disk.join("store"))), _agent: None, _containerd: None, s }
    }

    fn agent() -> Self {
        let fixture = Self::embedded();
        let agent = fixture.imagelet.serve(&fixture.s.scratch.join("cri.sock"));
        Self { _agent: Some(agent), ..fixture }
    }

    fn containerd() -> Self {
        let s = Scene::new();
        let disk = LoopFs::ext4(256).mount(&s.scratch, "disk");
        let setup = Setup { root: Some(disk.join("containerd")), ..Setup::default() };
        let containerd = Containerd::with(s.registry.host(), setup);
        let endpoint = containerd.endpoint();
        let imagelet = s.imagelet.clone().global("--image-endpoint", &endpoint).global("--runtime-endpoint", &endpoint);
        Self { imagelet: rules(&s, imagelet), _agent: None, _containerd: Some(containerd), s }
    }

    fn name(&self, name: &str) -> String {
        self.s.registry.name(name)
    }

    fn pull(&self, names: &[&str]) {
        for name in names {
            let (whole, _) = self.s.push_file(name, "a", noise_of(name, 200_000));
            self.imagelet.ok(&["pull", &whole]);
        }
    }

    /// Asserts that a collection does what its dry run says.
    #[track_caller]
    fn as_said(&self, args: &[&str]) -> (Value, Value) {
        let before = self.imagelet.ids();
        let plan = self.imagelet.plan(args);
        assert_eq!(self.imagelet.ids(), before, "a dry run removes nothing");
        let done = self.imagelet.collect(args);
        assert_eq!(going(&plan), removed_names(&done), "{args:?}");
        assert_eq!(self.imagelet.ids().len(), before.len() - removed_names(&done).len());
        (plan, done)
    }

    fn holds(&self) {
        self.pull(&[
            "team/web:1",
            "team/web:2",
            "team/web:3",
            "team/db:1",
            "base/os:1",
            "tool/x:1",
            "tool/x:2",
            "infra/pause:1",
        ]);
        let pin = self.imagelet.json(&["pin", &self.name("team/db"), &self.name("tool/x:1")]);
        assert_eq!(pin["pins"].as_array().map(Vec::len), Some(2), "{pin:#}");
        let pins = self.imagelet.json(&["pins"]);
        assert_eq!(pins["pins"][0]["pattern"], self.name("team/db"));
        assert_eq!(pins["pins"][0]["images"][0]["names"][0], self.name("team/db:1"));
        let (plan, _) = self.as_said(&["--older-than", "1h"]);
        assert_eq!(going(&plan), Vec::<String>::new(), "nothing is that old");
        assert_eq!(decision(&plan, "team/web:1"), "used-within");

        let plan = self.imagelet.plan(&["--all-unused"]);
        for (name, why) in [
            ("team/db:1", "pinned"),
            ("base/os:1", "rule"),
            ("tool/x:1", "pinned"),
            ("tool/x:2", "remove"),
            ("infra/pause:1", "in-use"),
        ] {
            assert_eq!(decision(&plan, name), why, "{name}: {}", row(&plan, name));
            let explained = self.imagelet.json(&["gc", "explain", &self.name(name)]);
            let explained = &explained["images"][0];
            if why != "remove" {
                assert_eq!(explained["decision"], why, "{name}: {explained:#}");
            }
            assert_eq!(explained["id"], row(&plan, name)["id"], "{explained:#}");
        }
        let webs = ["team/web:1", "team/web:2", "team/web:3"].map(|name| decision(&plan, name).to_owned());
        assert!(webs.iter().all(|web| web == "remove"), "{webs:?}");

        // Next to nothing is needed: one image, and not more.
        let available = plan["disk"]["before"]["availableBytes"].as_u64().expect("a number");
        let (_, done) = self.as_said(&["--until-free", &(available + (64 << 10)).to_string()]);
        assert!(removed_names(&done).len() <= 1, "{done:#}");

        self.as_said(&["--all-unused"]);
        let left = self.imagelet.plan(&["--all-unused"]);
        assert_eq!(going(&left), Vec::<String>::new());
        assert_eq!(self.imagelet.ids().len(), 4, "{left:#}");

        let unpin = self.imagelet.json(&["unpin", &self.name("team/db"), &self.name("tool/x:1")]);
        assert_eq!(unpin["pins"][0]["changed"], true, "{unpin:#}");
        assert_eq!(self.imagelet.json(&["pins"])["pins"], serde_json::json!([]));
        let (plan, _) = self.as_said(&["--all-unused"]);
        assert_eq!(going(&plan).len(), 2, "{plan:#}");
        assert_eq!(decision(&plan, "team/db:1"), "remove");
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn rules_hold_on_the_embedded_store() {
    Fixture::embedded().holds();
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn rules_hold_through_an_agent() {
    Fixture::agent().holds();
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn rules_hold_on_containerd() {
    Fixture::containerd().holds();
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn two_that_collect_do_not_come_into_each_others_way() {
    let fixture = Fixture::embedded();
    fixture.pull(&["team/web:1", "team/web:2", "team/web:3", "tool/x:1", "tool/x:2"]);
    let mut children: Vec<_> = (0..4).map(|_| fixture.imagelet.spawn(&["gc", "--all-unused"])).collect();
    for child in &mut children {
        let status = crate::support::cli::end_of(child);
        // The store has one owner: a command that starts meanwhile waits or reports it.
        assert!(matches!(status.code(), Some(0 | 1 | 69)), "{status}");
    }
    assert_eq!(fixture.imagelet.ids(), Vec::<String>::new());
    assert!(fixture.s.scratch.join("disk/store/image_gc").exists());
}
